package tune

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning/apply"
)

// agentGate is this host's agent as what keeps new VMs away.
type agentGate struct{ client *api.Client }

func (g agentGate) Drain(ctx context.Context, reason string) ([]string, error) {
	d, err := g.client.Drain(ctx, reason)
	if errors.Is(err, api.ErrNoAgent) {
		return nil, &farm.Error{Kind: farm.Unavailable, Code: app.CodeNoAgent,
			Message: "no agent runs here that could keep new VMs away", Err: err,
			Hint: "start it, or keep new VMs away yourself and use --wait"}
	}
	return d.Holders, err
}

func (g agentGate) EndDrain(ctx context.Context) error { return g.client.EndDrain(ctx) }

// applyDrained is apply with the host drained where the plan needs that. What an earlier one that was cut short has
// left is taken back first, and its drain is ended with ours.
func (a applyCommands) applyDrained(ctx context.Context, system apply.System, f applyFlags) error {
	err := apply.Startable(system)
	cut := farm.IsCode(err, farm.CodeUnfinished)
	if err != nil && !cut {
		return err
	}
	agreed := ""
	if cut {
		fmt.Fprintf(a.Err, "%v: it is taken back first\n", err)
	} else {
		var p apply.Plan
		if p, agreed, err = a.agree(ctx, system, f, ""); err != nil {
			return err
		}
		if !p.Waits() {
			return errors.Join(a.make(ctx, system, p, f), a.endDrain(ctx))
		}
	}
	return apply.Alone(ctx, system, agentGate{a.Client()}, a.applyOptions(), a.tellDrained, func(*apply.Run) error {
		p, err := a.agreedPlan(ctx, system, f, agreed)
		if err != nil {
			return err
		}
		return a.make(ctx, system, p, f)
	})
}

// endDrain ends the drain of an earlier command that was killed after its last step. Without an agent there is none.
func (a applyCommands) endDrain(ctx context.Context) error {
	if err := a.Client().EndDrain(context.WithoutCancel(ctx)); !errors.Is(err, api.ErrNoAgent) {
		return err
	}
	return nil
}

// undoDrained is undo on a drained host. Given again after a kill it must not take back an earlier apply: so the apply
// is named, unless one was cut short.
func (a applyCommands) undoDrained(ctx context.Context, id string, force bool) error {
	system, err := apply.Live()
	if err != nil {
		return err
	}
	defer system.Root().Close()
	err = apply.Startable(system)
	cut := farm.IsCode(err, farm.CodeUnfinished)
	if err != nil && !cut {
		return err
	}
	if id == "" && !cut {
		return app.Usage("`grange tune history` lists the applies",
			"name the apply that is to be taken back: with --drain the command can be given again")
	}
	return apply.Alone(ctx, system, agentGate{a.Client()}, a.applyOptions(), a.tellDrained,
		func(done *apply.Run) error {
			if done == nil || id != "" && id != done.ID {
				var err error
				if done, err = apply.Undo(ctx, system, id, force, a.applyOptions()); err != nil {
					return err
				}
			}
			return a.printUndone(done)
		})
}

func (a applyCommands) tellDrained(left []string) {
	fmt.Fprintf(a.Err, "no VM starts on this host now; waiting for these to end: %s\n", strings.Join(left, ", "))
}
