package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// Scores are what a core does in VMs of each size that a workload was measured in, with the host filled and tuned as it
// was then: for the farm file of the site, by which usage is normalised. unit is what to call it; "": as it was
// measured.
func Scores(m Measurement, workload, unit, host string) (scores []farm.Score, err error) {
	var known []string
	for _, r := range m.Results {
		if r.Workload != workload {
			known = append(known, r.Workload)
			continue
		}
		s := farm.Score{Name: fmt.Sprintf("%s-%d", m.Host.Kind, r.Size.CPUs), Hardware: m.Host.Kind, CPUs: r.Size.CPUs,
			Tuning: m.Host.Tuning, Core: r.VM / float64(r.Size.VMs*r.Size.CPUs), Unit: r.Unit,
			Source: fmt.Sprintf("grange bench run %s on %s, %s, %v, median of %d rounds", workload, host,
				m.Time.Format(time.DateOnly), r.Size, len(r.Rounds))}
		if m.Host.Tuning != "" {
			s.Name += "-" + m.Host.Tuning[:4]
		}
		if r.Ratio.Known() {
			s.Source += fmt.Sprintf(", %.3f of the host itself (95 %%: %.3f to %.3f)", r.Ratio.Median, r.Ratio.Low,
				r.Ratio.High)
		}
		if unit != "" {
			s.Unit = unit
		}
		if err := s.Validate(); err != nil {
			return nil, err
		}
		scores = append(scores, s)
	}
	if len(scores) == 0 {
		return nil, &farm.Error{Kind: farm.NotFound, Code: CodeBench,
			Message: fmt.Sprintf("the last measurement has no workload %q", workload),
			Hint:    "one of " + strings.Join(slices.Compact(known), ", ") + "; or measure it: `grange bench run`"}
	}
	return scores, nil
}
