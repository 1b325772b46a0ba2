package trial

import (
	"fmt"

	"github.com/grange-project/grange/internal/bench"
)

// Wrong is how often a trial of a change that does nothing may say that it does something, in either direction, at any
// of its points.
const Wrong = 0.01

// Fewest is how many rounds it takes to show anything at so many points.
func Fewest(points int) int { return bench.Fewest(confidence(points)) }

// confidence is that of each of so many intervals which hold together.
func confidence(points int) float64 { return 1 - Wrong/float64(max(points, 1)) }

// Effect is what the change does at a point.
type Effect struct {
	Point
	Ratio bench.Interval `json:"ratio"` // with the change, of without
	Shown string         `json:"shown"` // Gain, Loss or Nothing
}

// What is shown.
const (
	Gain    = "gain"
	Loss    = "loss"
	Nothing = "no difference shown"
)

// Verdict is what comes of a trial.
type Verdict struct {
	Change  string   `json:"change"`
	Rounds  int      `json:"rounds"`
	Effects []Effect `json:"effects"`
	Accept  bool     `json:"accept"` // a gain is shown, and no loss at any point
	Why     string   `json:"why"`
}

// Judge is the verdict on what is kept. The intervals of all points hold together.
func (k Kept) Judge() Verdict {
	v := Verdict{Change: k.Change, Rounds: len(k.Rounds)}
	gains, losses := 0, 0
	for i, p := range k.Points {
		var ratios []float64
		for _, r := range k.Rounds {
			ratios = append(ratios, r.ratio(i))
		}
		e := Effect{Point: p, Ratio: bench.IntervalOf(ratios, confidence(len(k.Points))), Shown: Nothing}
		switch {
		case e.Ratio.Shows(1) && e.Ratio.Median > 1:
			e.Shown = Gain
			gains++
		case e.Ratio.Shows(1):
			e.Shown = Loss
			losses++
		}
		v.Effects = append(v.Effects, e)
	}
	v.Accept = gains > 0 && losses == 0
	switch {
	case len(k.Rounds) < Fewest(len(k.Points)):
		v.Why = fmt.Sprintf("%d rounds show nothing; %d may", len(k.Rounds), Fewest(len(k.Points)))
	case losses > 0:
		v.Why = fmt.Sprintf("a loss is shown at %d of %d points", losses, len(k.Points))
	case gains > 0:
		v.Why = fmt.Sprintf("a gain is shown at %d of %d points, and no loss", gains, len(k.Points))
	default:
		v.Why = Nothing
	}
	return v
}
