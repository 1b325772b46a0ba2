// Package bench compares VMs with their host: a whole host filled with VMs of a size, as in production, does the same
// work as the host itself on the same CPUs. Who runs the work is told to it.
package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// CodeBench is the code of errors of a benchmark; docs/errors.md explains it.
const CodeBench farm.Code = "bench"

// Size is how a host is filled.
type Size struct {
	VMs    int        `json:"vms"`
	CPUs   int        `json:"cpus"`   // of each
	Memory farm.Bytes `json:"memory"` // of each
}

func (s Size) String() string { return fmt.Sprintf("%dx%d", s.VMs, s.CPUs) }

// ParseSize reads "4x8": four VMs of eight CPUs each.
func ParseSize(text string) (s Size, err error) {
	var more string
	n, _ := fmt.Sscanf(text+" ", "%dx%d%s", &s.VMs, &s.CPUs, &more)
	const most = 4096
	if n != 2 || s.VMs < 1 || s.CPUs < 1 || s.VMs*s.CPUs > most || s.String() != text {
		return Size{}, &farm.Error{Kind: farm.Invalid, Code: farm.CodeUsage,
			Message: fmt.Sprintf("invalid size %.40q", text), Hint: "write VMs x CPUs of each, as 4x8"}
	}
	return s, nil
}

// Team are the members on both sides: as many in VMs as beside them on the host, on the same CPUs. Only one side works
// at a time.
type Team interface {
	// Host and VMs have all members of a side do a workload at once, and return what they did together in a second.
	Host(ctx context.Context, workload string, d time.Duration) (float64, error)
	VMs(ctx context.Context, workload string, d time.Duration) (float64, error)
	Close() error
}

// Options are those of a run.
type Options struct {
	Workloads []string
	Sizes     []Size
	Each      time.Duration // of one measurement
	Limits    Limits
	Unit      func(workload string) string
	Short     func(workload string) string              // what a result calls it
	Field     func(context.Context, Size) (Team, error) // fills the host
	Tell      func(string)                              // of the progress
	// Power begins to watch how much power the host takes, and returns what tells it: in watts, 0 where it is not
	// known. Nil: nobody watches.
	Power func() (end func() float64)
	Now   func() time.Time
}

// Run measures all workloads at all sizes, in turns. With ctx it ends, and returns what it has.
func Run(ctx context.Context, o Options) (all []Result, err error) {
	for _, size := range o.Sizes {
		o.Tell(fmt.Sprintf("%v: starting %s", size, farm.Count(size.VMs, "VM")))
		team, err := o.Field(ctx, size)
		if err != nil {
			return all, fmt.Errorf("size %v: %w", size, err)
		}
		part, err := o.measure(ctx, size, team)
		all = append(all, part...)
		if err = errors.Join(err, team.Close()); err != nil {
			return all, err
		}
	}
	return all, nil
}

// measure does a round of each workload, until none needs one more.
func (o Options) measure(ctx context.Context, size Size, team Team) (all []Result, err error) {
	rounds, took := make([][]Round, len(o.Workloads)), make([]time.Duration, len(o.Workloads))
	why := make([]string, len(o.Workloads))
	for open := len(o.Workloads); open > 0 && err == nil; {
		for i, w := range o.Workloads {
			if why[i] != "" {
				continue
			}
			began := o.Now()
			var r Round
			if r, err = o.round(ctx, team, w); err != nil {
				err = fmt.Errorf("%s: %w", w, err)
				break
			}
			took[i] += o.Now().Sub(began)
			rounds[i] = append(rounds[i], r)
			o.Tell(fmt.Sprintf("%v: %s, round %d: %.3f of the host", size, o.Short(w), len(rounds[i]), r.ratio()))
			if why[i] = o.Limits.enough(rounds[i], took[i]); why[i] != "" {
				open--
			}
		}
	}
	for i, w := range o.Workloads {
		if len(rounds[i]) == 0 {
			continue
		}
		r := resultOf(size, o.Short(w), o.Unit(w), rounds[i])
		if r.Why = why[i]; r.Why == "" {
			r.Why = "interrupted"
		}
		all = append(all, r)
	}
	return all, err
}

func (o Options) watch() (end func() float64) {
	if o.Power == nil {
		return func() float64 { return 0 }
	}
	return o.Power()
}

func (o Options) round(ctx context.Context, team Team, workload string) (r Round, err error) {
	for _, one := range []struct {
		to, watts *float64
		side      func(context.Context, string, time.Duration) (float64, error)
	}{{&r.Host[0], &r.HostWatts[0], team.Host}, {&r.VM[0], &r.VMWatts[0], team.VMs},
		{&r.VM[1], &r.VMWatts[1], team.VMs}, {&r.Host[1], &r.HostWatts[1], team.Host}} {
		end := o.watch()
		if *one.to, err = one.side(ctx, workload, o.Each); err != nil {
			return r, err
		}
		*one.watts = end()
		if !(*one.to > 0) {
			return r, errors.New("nothing was done")
		}
	}
	return r, nil
}
