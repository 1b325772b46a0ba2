package bench

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// team is a host that is noisy, and VMs that are slower by a part.
type team struct {
	dice   *rand.Rand
	loss   float64
	noise  float64
	limit  int // measurements until it fails; 0: it never does
	closed bool
}

var errBroken = errors.New("broken")

func (t *team) rate(of float64) (float64, error) {
	if t.limit--; t.limit == 0 {
		return 0, errBroken
	}
	rate := of * (1 + t.noise*t.dice.NormFloat64())
	if t.dice.IntN(20) == 0 {
		rate *= 0.7 // somebody else was on the machine
	}
	return rate, nil
}

func (t *team) Host(context.Context, string, time.Duration) (float64, error) { return t.rate(1000) }
func (t *team) VMs(context.Context, string, time.Duration) (float64, error) {
	return t.rate(1000 * (1 - t.loss))
}
func (t *team) Close() error { t.closed = true; return nil }

func options(t *team) Options {
	now := time.Time{}
	return Options{Workloads: []string{"a"}, Sizes: []Size{{VMs: 1, CPUs: 1}}, Each: time.Second,
		Limits: Limits{Budget: 10 * time.Minute, Narrow: 0.003, Rounds: 60}, Short: func(w string) string { return w }, Unit: func(string) string { return "1/s" },
		Field: func(context.Context, Size) (Team, error) { return t, nil }, Tell: func(string) {},
		Now: func() time.Time { now = now.Add(time.Second); return now }}
}

// TestPlanted: losses that there are, are found, and none where there is none, but for the part that the confidence
// allows.
func TestPlanted(t *testing.T) {
	const trials = 200
	for _, loss := range []float64{0, 0.01, 0.03, 0.1} {
		found, inside := 0, 0
		for seed := range trials {
			one := &team{dice: rand.New(rand.NewPCG(uint64(seed), 7)), loss: loss, noise: 0.01}
			all, err := Run(t.Context(), options(one))
			if err != nil || len(all) != 1 || !one.closed {
				t.Fatal(all, err)
			}
			if all[0].Shown() == "loss" || all[0].Shown() == "gain" {
				found++
			}
			if !all[0].Ratio.Shows(1 - loss) {
				inside++
			}
		}
		part := float64(found) / trials
		if loss == 0 && part > 0.1 || loss >= 0.01 && part < 0.9 || loss >= 0.03 && part < 1 {
			t.Errorf("a loss of %g %%: found in %g of the trials", 100*loss, part)
		}
		if got := float64(inside) / trials; got < 0.9 {
			t.Errorf("a loss of %g %%: it is in the interval in %g of the trials", 100*loss, got)
		}
	}
}

// TestLimits: why there are no more rounds.
func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		noise  float64
		change func(*Options)
		why    string
		rounds int
		shown  string
	}{
		"quiet":     {0, func(*Options) {}, "narrow enough", 6, "no difference shown"},
		"no rounds": {0.2, func(o *Options) { o.Limits.Rounds = 9 }, "no more rounds", 9, ""},
		"no time": {0.2, func(o *Options) { o.Limits.Budget = 2 * time.Second }, "the time was over", 4,
			"too few rounds"},
		"little time": {0.2, func(o *Options) { o.Limits.Budget = 4 * time.Second }, "the time was over", 6, ""},
		"much of all": {0.2, func(*Options) {}, "no more rounds", 60, ""},
	} {
		one := &team{dice: rand.New(rand.NewPCG(1, 1)), noise: c.noise}
		o := options(one)
		c.change(&o)
		if name == "quiet" {
			o.Field = func(context.Context, Size) (Team, error) { return quiet{}, nil }
		}
		all, err := Run(t.Context(), o)
		if err != nil || all[0].Why != c.why || len(all[0].Rounds) != c.rounds ||
			c.shown != "" && all[0].Shown() != c.shown {
			t.Errorf("%s: %q after %d, %s, %v", name, all[0].Why, len(all[0].Rounds), all[0].Shown(), err)
		}
	}
}

// quiet is a host without noise.
type quiet struct{}

func (quiet) Host(context.Context, string, time.Duration) (float64, error) { return 5, nil }
func (quiet) VMs(context.Context, string, time.Duration) (float64, error)  { return 5, nil }
func (quiet) Close() error                                                 { return nil }

// TestBroken: what was measured before something broke is not lost, and the VMs go.
func TestBroken(t *testing.T) {
	one := &team{dice: rand.New(rand.NewPCG(1, 1)), noise: 0.1, limit: 4*7 + 3}
	all, err := Run(t.Context(), options(one))
	if !errors.Is(err, errBroken) || len(all) != 1 || len(all[0].Rounds) != 7 || all[0].Why != "interrupted" ||
		!one.closed {
		t.Errorf("%+v, %v, closed: %v", all, err, one.closed)
	}
	o := options(one)
	o.Field = func(context.Context, Size) (Team, error) { return nil, errBroken }
	if _, err := Run(t.Context(), o); !errors.Is(err, errBroken) {
		t.Error(err)
	}
}

func TestParseSize(t *testing.T) {
	for text, good := range map[string]bool{"4x8": true, "1x1": true, "": false, "4": false, "4x": false, "x8": false,
		"0x8": false, "4x8x": false, "4X8": false, "-1x8": false, "04x8": false, "4000x4000": false, "4x8 ": false} {
		if s, err := ParseSize(text); good != (err == nil) || good && s.String() != text {
			t.Errorf("%q: %v, %v", text, s, err)
		}
	}
}

func TestInterval(t *testing.T) {
	if i := interval([]float64{1, 2, 3}); i.Known() || i.Median != 2 || i.Shows(1e9) || i.within(0.5) {
		t.Errorf("of three values: %+v", i)
	}
	if i := interval([]float64{1, 2, 3, 4, 5, 6}); i.Low != 1 || i.High != 6 || math.Abs(i.Median-3.5) > 1e-9 {
		t.Errorf("of six: %+v", i)
	}
	if n := outliers([]float64{1, 1.01, 0.99, 1, 1.02, 0.3}); n != 1 {
		t.Errorf("%d outliers", n)
	}
}
