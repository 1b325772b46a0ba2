package bench

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"testing"
)

// boots are starts on hosts of a kind, about 5 s each with some noise; those of host n take slower(n) times as long.
func boots(dice *rand.Rand, hosts, each int, slower func(n int) float64) (all []Start) {
	for n := range hosts {
		for range each {
			all = append(all, Start{Host: fmt.Sprintf("h%02d", n), Kind: "amd", Image: "worker", CPUs: 4,
				Boot: 5 * slower(n) * (1 + 0.05*dice.NormFloat64())})
		}
	}
	return all
}

// TestSlowHosts: those that are slower are found, and how slow they are; of hosts that are alike none is.
func TestSlowHosts(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	some := func(n int) float64 { return cmp.Or(map[int]float64{7: 1.3, 9: 1.1}[n], 1) }
	slow, compared := SlowHosts(boots(dice, 40, 30, some))
	if compared != 40 || len(slow) != 2 || slow[0].Host != "h07" || slow[1].Host != "h09" {
		t.Fatalf("of %d: %+v", compared, slow)
	}
	if r := slow[0].Ratio(); r < 1.25 || r > 1.35 || slow[0].Hosts != 39 || slow[0].Starts != 30 {
		t.Errorf("%+v", slow[0])
	}
	found := 0
	for range 100 {
		slow, _ := SlowHosts(boots(dice, 40, 12, func(int) float64 { return 1 }))
		found += len(slow)
	}
	if found > 5 {
		t.Errorf("of 4,000 hosts that are all alike %d are called slow", found)
	}
}

// TestNotCompared: a host without peers, one that has started too little, and hosts of another kind, image or size.
func TestNotCompared(t *testing.T) {
	dice := rand.New(rand.NewPCG(3, 4))
	one := func(int) float64 { return 1 }
	few := boots(dice, 40, leastStarts-1, func(n int) float64 { return 1 + float64(n%2) })
	two := boots(dice, 2, 100, func(n int) float64 { return 1 + float64(n) })
	for name, starts := range map[string][]Start{"few starts": few, "few peers": two, "none": nil} {
		if slow, compared := SlowHosts(starts); compared != 0 || slow != nil {
			t.Errorf("%s: %d, %+v", name, compared, slow)
		}
	}
	for name, change := range map[string]func(*Start){"kind": func(s *Start) { s.Kind = "intel" },
		"image": func(s *Start) { s.Image = "cloud" }, "size": func(s *Start) { s.CPUs = 64 },
		"unknown": func(s *Start) { s.Kind = "" }, "no boot": func(s *Start) { s.Boot = 0 }} {
		starts := boots(dice, 10, 20, one)
		for _, s := range boots(dice, 1, 20, one) {
			s.Host, s.Boot = "other", 50
			change(&s)
			starts = append(starts, s)
		}
		if slow, compared := SlowHosts(starts); compared != 10 || len(slow) != 0 {
			t.Errorf("another %s: %d, %+v", name, compared, slow)
		}
	}
}
