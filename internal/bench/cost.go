package bench

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

const hoursOfYear = 8766

// Price is what a host costs, in the site's own money.
type Price struct {
	Host  float64 `json:"host"`  // its purchase
	Years float64 `json:"years"` // for which it is used
	KWh   float64 `json:"kwh"`   // of a kilowatt-hour, cooling included
	Watts float64 `json:"watts"` // that it takes under load; 0: as was measured
}

// Cost is what the work of a result costs.
type Cost struct {
	Size     Size    `json:"size"`
	Workload string  `json:"workload"`
	Unit     string  `json:"unit,omitempty"`
	Score    float64 `json:"score"`           // of all VMs
	Watts    float64 `json:"watts,omitempty"` // 0: not known, and the energy is not in the cost
	Year     float64 `json:"year"`            // of the host: its purchase by years, and its energy
	PerScore float64 `json:"per_score_year"`
	// the score for each watt; 0: not known
	PerWatt float64 `json:"score_per_watt,omitempty"`
	// by how much of itself the work is dearer in VMs than on the host alone
	Dearer float64 `json:"dearer"`
}

// Costs are those of a measurement.
func Costs(m Measurement, p Price) (all []Cost) {
	for _, r := range m.Results {
		c := Cost{Size: r.Size, Workload: r.Workload, Unit: r.Unit, Score: r.VM, Watts: r.VMWatts}
		host := r.HostWatts
		if p.Watts > 0 {
			c.Watts, host = p.Watts, p.Watts
		}
		c.Year = p.year(c.Watts)
		c.PerScore = c.Year / r.VM
		if c.Watts > 0 {
			c.PerWatt = r.VM / c.Watts
		}
		if alone := p.year(host) / r.Host; alone > 0 {
			c.Dearer = c.PerScore/alone - 1
		}
		all = append(all, c)
	}
	return all
}

// year is what a host costs in a year that takes so much power.
func (p Price) year(watts float64) float64 { return p.Host/p.Years + watts/1000*hoursOfYear*p.KWh }

// CostTable is for people. meter is where watts come from; "": nothing measures them.
func CostTable(all []Cost, meter string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WORKLOAD\tSIZE\tSCORE\t\tWATTS\tYEAR\tPER SCORE AND YEAR\tSCORE/WATT\tDEARER IN VMS")
	known := false
	for _, c := range all {
		watts, each := "-", "-"
		if c.Watts > 0 {
			known = true
			watts, each = fmt.Sprintf("%.0f", c.Watts), number(c.PerWatt)
		}
		fmt.Fprintf(w, "%s\t%v\t%s\t%s\t%s\t%.2f\t%s\t%s\t%.1f %%\n", c.Workload, c.Size, number(c.Score), c.Unit,
			watts, c.Year, number(c.PerScore), each, 100*c.Dearer)
	}
	w.Flush()
	switch {
	case !known:
		b.WriteString("\nThe energy is not in these costs: nothing measured it here. Give --watts.\n")
	case meter != "":
		fmt.Fprintf(&b, "\nWatts: %s.\n", meter)
	}
	return b.String()
}
