package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
)

// priorities are syslog's numbers of severities.
var priorities = map[tuning.Severity]int{tuning.Fault: 3, tuning.Warning: 4, tuning.Advice: 5}

// Lines writes a line a finding, each with syslog's priority before it as sd-daemon(3) has it: systemd takes that off
// again, and `journalctl -p warning` finds what matters.
func Lines(w io.Writer, r tuning.Report) error {
	p := &printer{w: w}
	for _, result := range r.Results {
		for _, place := range places(result.Findings) {
			f, where := place.finding, place.where
			if more := len(where) - mostPlaces; more > 0 {
				where = append(where[:mostPlaces:mostPlaces], fmt.Sprintf("and %d more", more))
			}
			p.line(fmt.Sprintf("<%d>%s %s: %s", priorities[f.Severity], strings.ToUpper(f.Severity.String()),
				result.Rule.ID, farm.Printable(strings.Join(where, ", ")+": "+f.Got+" → "+f.Wanted)))
		}
	}
	p.line("<6>" + farm.Printable(Summary(r)))
	return p.err
}
