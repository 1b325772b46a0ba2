// Package filebench measures how fast a directory of the host is in a VM by each gateway, and keeps what came out for
// the agent, which chooses by it.
package filebench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/grange-project/grange/internal/cputicks"
	"github.com/grange-project/grange/internal/diskbench"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/filebench/load"
)

// CodeBench is the code of errors of a benchmark; docs/errors.md explains it.
const CodeBench farm.Code = "gateway-bench"

// Result is one phase by one gateway.
type Result struct {
	Gateway  string  `json:"gateway"`
	Phase    string  `json:"phase"`
	Rate     float64 `json:"per_second"` // bytes of write and read, files of the others
	CPUHost  float64 `json:"cpus_host"`  // that worked, the VM's included, for whatever it was
	CPUGuest float64 `json:"cpus_guest"`
}

// Bytes reports whether the rate of a phase is in bytes.
func Bytes(phase string) bool { return phase == "write" || phase == "read" }

// Watch reads the output of a load that runs in a VM, and adds what this host's CPUs do meanwhile.
func Watch(out io.Reader, gateway string) (all []Result, err error) {
	began, ticks := time.Time{}, int64(0)
	err = load.Read(out, func(string) { began, ticks = time.Now(), cputicks.Busy() }, func(p load.Phase) {
		host := float64(cputicks.Busy()-ticks) / cputicks.ASecond / max(time.Since(began).Seconds(), p.Took.Seconds())
		all = append(all, Result{Gateway: gateway, Phase: p.Name, Rate: float64(p.Amount) / p.Took.Seconds(),
			CPUHost: host, CPUGuest: float64(p.Ticks) / cputicks.ASecond / p.Took.Seconds()})
	})
	if err == nil && len(all) != len(load.Phases) {
		err = fmt.Errorf("%d of %d phases", len(all), len(load.Phases))
	}
	return all, err
}

// Options are those of a run.
type Options struct {
	Gateways []farm.Gateway
	Rounds   int
	// One measures a gateway in a VM of its own. An error leaves the gateway out.
	One  func(context.Context, farm.Gateway) ([]Result, error)
	Tell func(string) // of the progress
}

// Run measures the gateways in turns: what the host does meanwhile meets all of them alike. left is why a gateway has
// no results. Error: CodeBench, where none has.
func Run(ctx context.Context, o Options) (all []Result, left map[farm.Gateway]string, err error) {
	left = map[farm.Gateway]string{}
	var last error
	for round := range o.Rounds {
		for _, g := range o.Gateways {
			if left[g] != "" {
				continue
			}
			o.Tell(fmt.Sprintf("round %d of %d: %s", round+1, o.Rounds, g))
			part, err := o.One(ctx, g)
			if ctx.Err() != nil {
				return nil, nil, context.Cause(ctx)
			}
			if err != nil {
				last, left[g] = err, err.Error()
				o.Tell(fmt.Sprintf("%s is left out: %v", g, err))
				all = slices.DeleteFunc(all, func(r Result) bool { return r.Gateway == string(g) })
			}
			all = append(all, part...)
		}
	}
	if len(all) == 0 {
		hint := "see `grange exec -- true`"
		if e := new(farm.Error); errors.As(last, &e) && e.Hint != "" {
			hint = e.Hint
		}
		return nil, left, &farm.Error{Kind: farm.Unavailable, Code: CodeBench, Message: "no gateway could be measured",
			Hint: hint, Err: last}
	}
	return all, left, nil
}

// Median is the middle of what the rounds gave for one gateway and phase.
type Median struct {
	Result
	Spread float64 `json:"spread"` // of the rates: largest by smallest, 1 where all are equal
	Rounds int     `json:"rounds"`
}

// Medians are of each gateway and phase, in the order of their first results.
func Medians(all []Result) (out []Median) {
	for _, r := range all {
		if slices.ContainsFunc(out, func(m Median) bool { return m.Gateway == r.Gateway && m.Phase == r.Phase }) {
			continue
		}
		var g []Result
		for _, other := range all {
			if other.Gateway == r.Gateway && other.Phase == r.Phase {
				g = append(g, other)
			}
		}
		slices.SortFunc(g, func(a, b Result) int { return cmp.Compare(a.Rate, b.Rate) })
		out = append(out, Median{g[len(g)/2], g[len(g)-1].Rate / g[0].Rate, len(g)})
	}
	return out
}

// Recommend names the gateway with the largest geometric mean of rates over all phases.
func Recommend(all []Median) diskbench.Verdict {
	var same []diskbench.Median
	for _, m := range all {
		same = append(same, diskbench.Median{Result: diskbench.Result{Choice: m.Gateway, Pattern: m.Phase,
			Rate: m.Rate}, Spread: m.Spread, Rounds: m.Rounds})
	}
	return diskbench.Recommend(same)
}
