// Package trial finds out what one change is worth on a host: it measures VMs without the change and with it, in turns,
// and accepts it only where that is shown. Who makes the change, and who measures, is told to it.
package trial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/grange-project/grange/internal/bench"
	"github.com/grange-project/grange/internal/farm"
)

// CodeTrial is of a trial that cannot be made.
const CodeTrial farm.Code = "trial"

// Point is what is measured: a workload in VMs of a size.
type Point struct {
	Size     bench.Size `json:"size"`
	Workload string     `json:"workload"`
}

func (p Point) String() string { return p.Workload + " in " + p.Size.String() }

// Round is all points without the change, with it, with it and without it: what drifts meets both alike.
type Round struct {
	Off [2][]float64 `json:"off"` // rates, in the order of the points
	On  [2][]float64 `json:"on"`
}

// Kept is a trial as it is on disk: all rounds that were done whole.
type Kept struct {
	Version int       `json:"version"`
	Change  string    `json:"change"`
	Began   time.Time `json:"began"`
	Points  []Point   `json:"points"`
	// Options are those of the command, and Host is what it began on: rounds of others do not add up with its own.
	Options string          `json:"options,omitempty"`
	Host    bench.HostState `json:"host"`
	Rounds  []Round         `json:"rounds"`
	// Made is the ID of the apply that makes the change, while it may be made; "": it is not.
	Made string `json:"made,omitempty"`
}

// Same reports whether a trial asks what another one asked, of a host that is as it was, so that rounds of both count.
func (k Kept) Same(o Kept) bool {
	return k.Change == o.Change && k.Options == o.Options && slices.Equal(k.Points, o.Points) &&
		len(k.Host.Changes(o.Host)) == 0
}

// Host is what is tried on.
type Host interface {
	// Switch makes the change, or takes it back; where it is so already, nothing happens. What it returns without an
	// error is proven.
	Switch(ctx context.Context, on bool) error
	// Measure returns the rates of all points, as the host is now.
	Measure(ctx context.Context, points []Point) ([]float64, error)
}

// Options are those of a trial.
type Options struct {
	Rounds int
	Keep   func([]Round) error // writes them down
	Tell   func(string)        // of the progress
}

// Run goes on with a trial until it has so many rounds. However it ends, the change is taken back; what cannot be, is
// an error.
func Run(ctx context.Context, h Host, k Kept, o Options) (_ Kept, err error) {
	defer func() {
		if back := h.Switch(context.WithoutCancel(ctx), false); back != nil {
			err = errors.Join(err, fmt.Errorf("the change is not taken back: %w", back))
		}
	}()
	for len(k.Rounds) < o.Rounds {
		var r Round
		for _, turn := range []struct {
			on    bool
			rates *[]float64
		}{{false, &r.Off[0]}, {true, &r.On[0]}, {true, &r.On[1]}, {false, &r.Off[1]}} {
			if err := h.Switch(ctx, turn.on); err != nil {
				return k, err
			}
			if *turn.rates, err = h.Measure(ctx, k.Points); err != nil {
				return k, err
			}
			for i, rate := range *turn.rates {
				if !(rate > 0) {
					return k, fmt.Errorf("%v: nothing was done", k.Points[i])
				}
			}
		}
		k.Rounds = append(k.Rounds, r)
		if err := o.Keep(k.Rounds); err != nil {
			return k, err
		}
		o.Tell(fmt.Sprintf("round %d of %d: with the change %s", len(k.Rounds), o.Rounds, r.text(k.Points)))
	}
	return k, nil
}

func (r Round) text(points []Point) (text string) {
	for i, p := range points {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%.3f (%v)", r.ratio(i), p)
	}
	return text
}

// ratio is a point with the change, as a part of what it is without.
func (r Round) ratio(i int) float64 { return (r.On[0][i] + r.On[1][i]) / (r.Off[0][i] + r.Off[1][i]) }
