package generate

import (
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestFlavors plans some of all combinations of properties.
func TestFlavors(t *testing.T) {
	r := Flavors(7)
	show(t, r, 10000)
}

// TestMachines places VMs on some of the machines.
func TestMachines(t *testing.T) {
	count := 10000
	if testing.Short() {
		count = 300
	}
	show(t, Machines(count), count)
}

func show(t *testing.T, r Result, least int) {
	t.Helper()
	for i, bad := range r.Bad {
		if i == 20 {
			t.Fatalf("%d of %d are bad", len(r.Bad), r.Generated)
		}
		t.Error(bad)
	}
	if r.Generated < least {
		t.Errorf("generated %d, want %d", r.Generated, least)
	}
}

// TestGuestsAreJudged holds the rules to find guests whose cells cut their cores or sockets.
func TestGuestsAreJudged(t *testing.T) {
	for _, c := range []struct {
		guest farm.GuestTopology
		cells []string
		bad   bool
	}{
		{farm.GuestTopology{Sockets: 2, Cores: 2, Threads: 2}, []string{"0-3", "4-7"}, false},
		{farm.GuestTopology{Sockets: 1, Cores: 4, Threads: 2}, []string{"0-1,4-5", "2-3,6-7"}, false},
		{farm.GuestTopology{Sockets: 4, Cores: 1, Threads: 2}, []string{"0-1,4-5", "2-3,6-7"}, false},
		{farm.GuestTopology{Sockets: 2, Cores: 2, Threads: 2}, []string{"0-1,4-5", "2-3,6-7"}, true},
		{farm.GuestTopology{Sockets: 1, Cores: 4, Threads: 2}, []string{"0-2", "3-7"}, true},
		{farm.GuestTopology{Sockets: 1, Cores: 4, Threads: 1}, []string{"0-3", "4-7"}, true},
	} {
		p := farm.Plan{Guest: c.guest, VCPUs: make([]farm.CPUSet, 8)}
		for _, text := range c.cells {
			set, err := farm.ParseCPUSet(text)
			if err != nil {
				t.Fatal(err)
			}
			p.Cells = append(p.Cells, farm.GuestCell{VCPUs: set})
		}
		if errs := guest(p); (len(errs) > 0) != c.bad {
			t.Errorf("%+v in %v: %v", c.guest, c.cells, errs)
		}
	}
}

// TestAdvice follows the advice of every finding on every recorded host.
func TestAdvice(t *testing.T) {
	r, err := Advice("../../..")
	if err != nil {
		t.Fatal(err)
	}
	show(t, r, 100)
}
