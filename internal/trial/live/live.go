// Package live tries changes on this host: they are made and taken back as `grange tune apply` and undo do it, and
// measured by the members of a benchmark.
package live

import (
	"context"
	"errors"
	"time"

	"github.com/grange-project/grange/internal/bench"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/trial"
	"github.com/grange-project/grange/internal/tuning"
	"github.com/grange-project/grange/internal/tuning/apply"
)

// Host is a trial.Host.
type Host struct {
	System   apply.System
	Gate     apply.Gate
	Findings []tuning.Finding // what the change mends
	Apply    apply.Options
	Field    func(context.Context, bench.Size) (bench.Team, error)
	OnHost   bool // the host's side of the field is measured, not its VMs
	Each     time.Duration
	// Note writes down which apply may make the change, before it does; "": none.
	Note    func(made string) error
	Waiting func([]string) // is told what VMs are waited for

	made *apply.Run
	team bench.Team
	size bench.Size
}

// Plan is what the change does now; without a step it does nothing.
func (h *Host) Plan(ctx context.Context) (apply.Plan, error) {
	return apply.NewPlan(ctx, h.System, h.Findings)
}

// Recover takes back the apply of an earlier trial that was cut short, if it still holds.
func (h *Host) Recover(ctx context.Context, made string) error {
	if made == "" {
		return nil
	}
	runs, err := apply.History(h.System.Root())
	if err != nil {
		return err
	}
	for _, r := range runs {
		if r.ID == made && r.Phase != apply.Undone && r.Phase != apply.Planned {
			h.made = r
			return h.Switch(ctx, false)
		}
	}
	return h.Note("")
}

// Switch makes the change, or takes it back. Where no VM may run meanwhile, those of the trial end first, and others
// are waited for.
func (h *Host) Switch(ctx context.Context, on bool) error {
	if on == (h.made != nil) {
		return nil
	}
	work := h.undo
	var waits bool
	if on {
		p, err := h.Plan(ctx)
		if err != nil {
			return err
		}
		waits, work = p.Waits(), func(ctx context.Context) error { return h.do(ctx, p) }
	} else {
		waits = h.made.Plan.Waits()
	}
	if !waits {
		return work(ctx)
	}
	if err := h.Close(); err != nil {
		return err
	}
	return apply.Alone(ctx, h.System, h.Gate, h.Apply, h.Waiting, func(*apply.Run) error { return work(ctx) })
}

func (h *Host) do(ctx context.Context, p apply.Plan) error {
	o := h.Apply
	o.Begin = h.Note
	run, err := apply.Do(ctx, h.System, p, o)
	if err == nil {
		h.made = run
		return nil
	}
	if run == nil || run.Phase == apply.Undone { // nothing is made
		return errors.Join(err, h.Note(""))
	}
	return err
}

func (h *Host) undo(ctx context.Context) error {
	id := h.made.ID
	if h.made.Phase != apply.Undone { // of one that was cut short, Alone may have taken it back
		if _, err := apply.Undo(ctx, h.System, id, false, h.Apply); err != nil && !farm.IsCode(err, apply.CodeNoApply) {
			return err
		}
	}
	h.made = nil
	if err := h.Note(""); err != nil {
		return err
	}
	// A trial makes its change dozens of times: what is left of them in the history would tell nobody anything.
	return apply.Forget(h.System, id)
}

// Measure has all members do each workload at once.
func (h *Host) Measure(ctx context.Context, points []trial.Point) (rates []float64, err error) {
	for _, p := range points {
		if h.team == nil || h.size != p.Size {
			if err := h.Close(); err != nil {
				return nil, err
			}
			if h.team, err = h.Field(ctx, p.Size); err != nil {
				return nil, err
			}
			h.size = p.Size
		}
		side := h.team.VMs
		if h.OnHost {
			side = h.team.Host
		}
		rate, err := side(ctx, p.Workload, h.Each)
		if err != nil {
			return nil, err
		}
		rates = append(rates, rate)
	}
	return rates, nil
}

// Close ends the members.
func (h *Host) Close() error {
	if h.team == nil {
		return nil
	}
	err := h.team.Close()
	h.team = nil
	return err
}

// Setting is the change of one value of /sys or /proc/sys, as a finding of the trial's own.
func Setting(path, value string) tuning.Finding {
	return tuning.Finding{Rule: "trial", Where: "host", Wanted: path + "=" + value,
		Changes: []tuning.Change{{Kind: tuning.SetValue, Path: path[1:], Value: value}}}
}
