package bench

import (
	"math"
	"strings"
	"testing"
)

// TestCosts: purchase and energy for each score and year, in VMs and against the host alone.
func TestCosts(t *testing.T) {
	m := Measurement{Results: []Result{{Size: Size{VMs: 4, CPUs: 8}, Workload: "db12", Unit: "DB12", Host: 500, VM: 400,
		HostWatts: 400, VMWatts: 500}, {Workload: "integer", Host: 10, VM: 10}}}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9*math.Abs(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	p := Price{Host: 5000, Years: 5, KWh: 0.2}
	all := Costs(m, p)
	near("a year", all[0].Year, 1000+0.5*8766*0.2)
	near("a score", all[0].PerScore, (1000+0.5*8766*0.2)/400)
	near("of a watt", all[0].PerWatt, 0.8)
	near("dearer", all[0].Dearer, (1000+0.5*8766*0.2)/400/((1000+0.4*8766*0.2)/500)-1)
	near("a year without watts", all[1].Year, 1000)
	near("alike", all[1].Dearer, 0)
	p.Watts = 300
	given := Costs(m, p)
	near("with given watts", given[1].Year, 1000+0.3*8766*0.2)
	near("given for both", given[0].Watts, 300)
	if table := CostTable(all, "a meter"); !strings.Contains(table, "Watts: a meter.") ||
		!strings.Contains(table, "4x8") || !strings.Contains(table, "0.8") {
		t.Error(table)
	}
	if table := CostTable(all[1:], ""); !strings.Contains(table, "energy is not in these costs") {
		t.Error(table)
	}
}
