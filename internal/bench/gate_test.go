package bench

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// measured is a measurement of VMs at a speed, with noise.
func measured(speed, noise float64, rounds int, seed uint64) Measurement {
	random := rand.New(rand.NewPCG(seed, 3))
	rate := func() float64 { return speed * (1 + noise*random.NormFloat64()) }
	var all []Round
	for range rounds {
		all = append(all, Round{Host: [2]float64{rate(), rate()}, VM: [2]float64{rate(), rate()}})
	}
	return Measurement{Command: "grange bench run integer", Host: HostState{CPU: "E5", CPUs: 32, Kernel: "5.10"},
		Results: []Result{resultOf(Size{VMs: 4, CPUs: 8}, "integer", "", all)}}
}

// TestGate: a loss beyond the noise is one, and nothing else is.
func TestGate(t *testing.T) {
	for name, c := range map[string]struct {
		now  Measurement
		lost bool
	}{
		"the seeds' 7 %":   {measured(93, 0.01, 20, 2), true},
		"no change":        {measured(100, 0.01, 20, 2), false},
		"a gain":           {measured(110, 0.01, 20, 2), false},
		"less than counts": {measured(99, 0.001, 20, 2), false},
		"in the noise":     {measured(95, 0.15, 20, 2), false},
	} {
		g, err := Gate(measured(100, 0.01, 20, 1), c.now, 0.02)
		if err != nil || g.Lost != c.lost || len(g.Drops) != 1 || g.Drops[0].Lost != c.lost ||
			strings.Contains(g.Table(), "LOST") != c.lost {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
	}
}

// TestGateRefuses: what cannot be compared is not.
func TestGateRefuses(t *testing.T) {
	base, other, less := measured(100, 0.01, 20, 1), measured(100, 0.01, 20, 1), measured(100, 0.01, 20, 1)
	other.Host.CPU = "EPYC"
	less.Results[0].Workload = "float"
	paged, longer := base, base
	paged.Options, longer.Each = "--page-size 1G", time.Second
	for _, now := range []Measurement{other, less, paged, longer, measured(90, 0.01, 1, 2)} {
		if g, err := Gate(base, now, 0.02); err == nil {
			t.Errorf("%+v", g)
		}
	}
	if g, err := Gate(Measurement{Host: base.Host}, base, 0.02); err == nil {
		t.Errorf("%+v", g)
	}
	newer := measured(100, 0.01, 20, 2)
	newer.Host.Kernel, newer.Host.KVM = "6.1", map[string]string{"kvm_intel.ept": "Y"}
	g, err := Gate(base, newer, 0.02)
	if err != nil || !slices.Equal(g.Changed, []string{"kernel: 5.10 → 6.1", "KVM: map[] → map[kvm_intel.ept:Y]"}) {
		t.Errorf("%q, %v", g.Changed, err)
	}
}
