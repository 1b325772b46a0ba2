package filebench

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/grange-project/grange/internal/chart"
	"github.com/grange-project/grange/internal/filebench/load"
)

// Table is a measurement for people: rates, then how many CPUs worked meanwhile, a line a gateway.
func Table(m Measurement) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s, kernel %s, %s, VMs by %s\n\n", m.Command, m.Time.Format(time.RFC3339), m.Kernel,
		m.FileSystem, m.Accelerator)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	head := func(first string) {
		fmt.Fprintf(w, "%s\t%s\n", first, strings.ToUpper(strings.Join(load.Phases, "\t")))
	}
	head("GATEWAY")
	rows(w, m.Results, func(r Median) string { return rate(r.Result) })
	w.Flush()
	fmt.Fprintln(&b)
	head("CPUS HOST/VM")
	rows(w, m.Results, func(r Median) string { return fmt.Sprintf("%.1f/%.1f", r.CPUHost, r.CPUGuest) })
	w.Flush()
	fmt.Fprintln(&b)
	for _, g := range slices.Sorted(maps.Keys(m.Left)) {
		fmt.Fprintf(&b, "%s was not measured: %s\n", g, m.Left[g])
	}
	fmt.Fprintf(&b, "%s.\n", m.Verdict)
	return b.String()
}

func rows(w *tabwriter.Writer, all []Median, cell func(Median) string) {
	var names []string
	for _, r := range all {
		if !slices.Contains(names, r.Gateway) {
			names = append(names, r.Gateway)
		}
	}
	for _, name := range names {
		fmt.Fprint(w, name)
		for _, phase := range load.Phases {
			text := "-"
			for _, r := range all {
				if r.Gateway == name && r.Phase == phase {
					text = cell(r)
				}
			}
			fmt.Fprintf(w, "\t%s", text)
		}
		fmt.Fprintln(w)
	}
}

func rate(r Result) string {
	if Bytes(r.Phase) {
		return fmt.Sprintf("%.1f MB/s", r.Rate/1e6)
	}
	return fmt.Sprintf("%.0f/s", r.Rate)
}

// Picture draws measurements, a group of bars a phase.
func Picture(all []Measurement) string {
	var bars []chart.Bar
	for _, m := range all {
		for _, phase := range load.Phases {
			group := phase
			if len(all) > 1 {
				group = m.FileSystem + ": " + phase
			}
			for _, r := range m.Results {
				if r.Phase == phase {
					bars = append(bars, chart.Bar{Group: group, Name: r.Gateway, Value: r.Rate, Text: rate(r.Result)})
				}
			}
		}
	}
	return chart.Bars("grange gateway bench", bars)
}
