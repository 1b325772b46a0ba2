package trial

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/grange-project/grange/internal/bench"
)

// host is one whose workloads have known effects, and noise.
type host struct {
	random   *rand.Rand
	effects  []float64 // of each point, as a part
	noise    float64
	drift    float64 // of each measurement: the machine becomes slower
	on       bool
	switches int
	fails    int // the measurement at which it fails; 0: none
	measured int
}

var errBroken = errors.New("broken")

func (h *host) Switch(_ context.Context, on bool) error {
	if h.on != on {
		h.switches++
	}
	h.on = on
	return nil
}

func (h *host) Measure(_ context.Context, points []Point) (out []float64, err error) {
	if h.measured++; h.measured == h.fails {
		return nil, errBroken
	}
	for i := range points {
		rate := 100 * (1 + h.noise*h.random.NormFloat64()) * (1 - h.drift*float64(h.measured))
		if h.on {
			rate *= 1 + h.effects[i]
		}
		out = append(out, rate)
	}
	return out, nil
}

func points(n int) (all []Point) {
	for i := range n {
		all = append(all, Point{bench.Size{VMs: 1, CPUs: i + 1}, "integer"})
	}
	return all
}

func tried(t *testing.T, h *host, n, rounds int) Verdict {
	t.Helper()
	k, err := Run(t.Context(), h, Kept{Points: points(n)}, Options{Rounds: rounds, Tell: func(string) {},
		Keep: func([]Round) error { return nil }})
	if err != nil || h.on {
		t.Fatal(err, h.on)
	}
	return k.Judge()
}

// TestPlanted: effects that are larger than the noise are found, on a machine that drifts, and what hurts one size is
// not accepted.
func TestPlanted(t *testing.T) {
	for i, c := range []struct {
		effects []float64
		accept  bool
		shown   []string
	}{
		{[]float64{0.01}, true, []string{Gain}}, {[]float64{0.03}, true, []string{Gain}},
		{[]float64{-0.1}, false, []string{Loss}}, {[]float64{0.1, 0}, true, []string{Gain, Nothing}},
		{[]float64{0.1, -0.03}, false, []string{Gain, Loss}},
		{[]float64{0, 0, 0}, false, []string{Nothing, Nothing, Nothing}},
	} {
		h := &host{random: rand.New(rand.NewPCG(uint64(i), 5)), effects: c.effects, noise: 0.003, drift: 0.001}
		v := tried(t, h, len(c.effects), 14)
		var shown []string
		for _, e := range v.Effects {
			shown = append(shown, e.Shown)
		}
		if v.Accept != c.accept || !slices.Equal(shown, c.shown) {
			t.Errorf("%v: %+v", c.effects, v)
		}
		if h.switches != 28 {
			t.Errorf("%d switches", h.switches)
		}
	}
}

// TestNothing: of changes that do nothing hardly one is said to do something.
func TestNothing(t *testing.T) {
	const trials = 1000
	wrong := 0
	for i := range trials {
		h := &host{random: rand.New(rand.NewPCG(uint64(i), 7)), effects: make([]float64, 3), noise: 0.02}
		for _, e := range tried(t, h, 3, 14).Effects {
			if e.Shown != Nothing {
				wrong++
				break
			}
		}
	}
	if wrong > trials*2*Wrong {
		t.Errorf("%d of %d trials of nothing found something", wrong, trials)
	}
}

// TestGoesOn: rounds that were done are not done again, and a trial that breaks takes its change back.
func TestGoesOn(t *testing.T) {
	h := &host{random: rand.New(rand.NewPCG(1, 1)), effects: []float64{0.1}, noise: 0.001, fails: 11}
	var kept Kept
	kept.Points = points(1)
	o := Options{Rounds: 10, Tell: func(string) {}, Keep: func(r []Round) error { kept.Rounds = r; return nil }}
	if _, err := Run(t.Context(), h, kept, o); !errors.Is(err, errBroken) || h.on ||
		len(kept.Rounds) != 2 {
		t.Fatalf("%v, on %v, %d rounds", err, h.on, len(kept.Rounds))
	}
	k, err := Run(t.Context(), h, kept, o)
	if err != nil || len(k.Rounds) != 10 || h.measured != 11+32 || !k.Judge().Accept {
		t.Errorf("%v, %d rounds, %d measurements", err, len(k.Rounds), h.measured)
	}
	o.Keep = func([]Round) error { return errBroken }
	if _, err := Run(t.Context(), h, Kept{Points: points(1)}, o); !errors.Is(err, errBroken) || h.on {
		t.Errorf("%v, on %v", err, h.on)
	}
}

// TestTooFew: what few rounds cannot show is not shown.
func TestTooFew(t *testing.T) {
	h := &host{random: rand.New(rand.NewPCG(1, 1)), effects: []float64{0.5}, noise: 0.001}
	if v := tried(t, h, 1, Fewest(1)-1); v.Accept || v.Effects[0].Shown != Nothing {
		t.Errorf("%+v", v)
	}
	if v := tried(t, h, 1, Fewest(1)); !v.Accept {
		t.Errorf("%+v", v)
	}
}

// TestSame: other sizes are another trial, and so are other options, and another kernel.
func TestSame(t *testing.T) {
	a := Kept{Change: "x", Points: points(2), Options: "--rounds 14", Host: bench.HostState{Kernel: "6.1"}}
	if b := a; !a.Same(b) {
		t.Error("not the same")
	}
	for name, change := range map[string]func(*Kept){"sizes": func(k *Kept) { k.Points = points(1) },
		"change": func(k *Kept) { k.Change = "y" }, "options": func(k *Kept) { k.Options = "--rounds 20" },
		"kernel": func(k *Kept) { k.Host.Kernel = "6.12" }} {
		b := a
		if change(&b); a.Same(b) {
			t.Error("not told apart: another " + name)
		}
	}
}
