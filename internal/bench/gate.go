package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/perf/benchmath"

	"github.com/grange-project/grange/internal/farm"
)

// usualVMs is what a measurement without options was made with.
const usualVMs = "VMs as they come"

// surely is the probability below which two measurements do not differ by chance alone.
const surely = 0.01

// Drop is what became of a workload at a size since the baseline.
type Drop struct {
	Size     Size    `json:"size"`
	Workload string  `json:"workload"`
	Base     float64 `json:"base"` // median rate of all VMs
	Now      float64 `json:"now"`
	Change   float64 `json:"change"` // as a part: -0.07 is a loss of 7 %
	Noise    float64 `json:"noise"`  // of the noisier one
	P        float64 `json:"p"`      // how likely chance alone makes such a difference
	Lost     bool    `json:"lost"`
}

// Gated is a measurement beside its baseline.
type Gated struct {
	Drops   []Drop   `json:"drops"`
	Changed []string `json:"changed"` // of the host
	Lost    bool     `json:"lost"`
}

// Gate compares a measurement with the baseline of its hardware: lost is what is slower by more than least, and than
// the noise of both, and not by chance.
func Gate(base, now Measurement, least float64) (g Gated, err error) {
	if base.Host.CPU != now.Host.CPU || base.Host.CPUs != now.Host.CPUs {
		return g, gateError(fmt.Sprintf("the baseline is of other hardware: %s with %s", base.Host.CPU,
			farm.Count(base.Host.CPUs, "CPU")), "take the baseline of a host of this kind")
	}
	if base.Options != now.Options || base.Each != now.Each {
		return g, gateError(fmt.Sprintf("the baseline was measured otherwise: for %v, with %s; and this for %v, with %s",
			base.Each, cmp.Or(base.Options, usualVMs), now.Each, cmp.Or(now.Options, usualVMs)),
			"measure as the baseline was: `"+base.Command+"`")
	}
	for _, b := range base.Results {
		i := slices.IndexFunc(now.Results, func(r Result) bool {
			return r.Size == b.Size && r.Workload == b.Workload && r.Ratio.Known() && b.Ratio.Known()
		})
		if i < 0 {
			return g, gateError(fmt.Sprintf("%s at %v was not measured, or in too few rounds", b.Workload, b.Size),
				"measure what the baseline has: `"+base.Command+"`")
		}
		d := drop(b, now.Results[i], least)
		g.Drops, g.Lost = append(g.Drops, d), g.Lost || d.Lost
	}
	if len(g.Drops) == 0 {
		return g, gateError("the baseline has no result", "measure one: `grange bench run`, `grange bench gate --save`")
	}
	g.Changed = base.Host.Changes(now.Host)
	return g, nil
}

func gateError(message, hint string) error {
	return &farm.Error{Kind: farm.Conflict, Code: CodeBench, Message: message, Hint: hint}
}

func drop(base, now Result, least float64) Drop {
	d := Drop{Size: base.Size, Workload: base.Workload, Base: base.VM, Now: now.VM, Change: now.VM/base.VM - 1,
		Noise: max(base.Noise, now.Noise)}
	d.P = benchmath.AssumeNothing.Compare(base.sample(), now.sample()).P
	d.Lost = d.Change < -max(least, d.Noise) && d.P < surely
	return d
}

func (r Result) sample() *benchmath.Sample {
	var rates []float64
	for _, one := range r.Rounds {
		rates = append(rates, one.VM[:]...)
	}
	return sampleOf(rates)
}

// Changes are what of the host is another than it was.
func (s HostState) Changes(now HostState) (all []string) {
	for _, one := range [][3]string{{"kernel", s.Kernel, now.Kernel}, {"microcode", s.Microcode, now.Microcode},
		{"QEMU", s.QEMU, now.QEMU},
		{"THP", s.THP, now.THP},
		{"governors", strings.Join(s.Governors, " "), strings.Join(now.Governors, " ")},
		{"KVM", fmt.Sprint(s.KVM), fmt.Sprint(now.KVM)},
		{"mitigations", fmt.Sprint(s.Mitigations), fmt.Sprint(now.Mitigations)}} {
		if one[1] != one[2] {
			all = append(all, fmt.Sprintf("%s: %s → %s", one[0], one[1], one[2]))
		}
	}
	return all
}

// Table is that for people.
func (g Gated) Table() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WORKLOAD\tSIZE\tBASELINE\tNOW\tCHANGE\tNOISE\tP\t")
	for _, d := range g.Drops {
		word := ""
		if d.Lost {
			word = "LOST"
		}
		fmt.Fprintf(w, "%s\t%v\t%s\t%s\t%+.1f %%\t%.1f %%\t%.3f\t%s\n", d.Workload, d.Size, number(d.Base),
			number(d.Now), 100*d.Change, 100*d.Noise, d.P, word)
	}
	w.Flush()
	for _, c := range g.Changed {
		fmt.Fprintf(&b, "changed since: %s\n", c)
	}
	return b.String()
}
