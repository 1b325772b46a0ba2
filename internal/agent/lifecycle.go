package agent

import (
	"context"
	"encoding/json"
	"os"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/numa"
)

// The life of a machine, of jobs, workers and cloud VMs alike: define, run, end.

// define has the hypervisor make a machine, and brings it to where its first instruction is next. Each step keeps the
// next ones safe: the process is where its owner is charged before it has a network, and nothing connects to a machine
// that does not lie as planned. started takes notice of what was made; claim is the machine's in the ledger.
func (a *Agent) define(ctx context.Context, m *machine, spec hyper.Machine, n farm.Network, claim string,
	started func(hyper.Applied) error) error {
	applied, err := a.hyper.Start(ctx, spec)
	if err != nil {
		return err
	}
	if err := started(applied); err != nil {
		return err
	}
	if err := a.fence(ctx, m, n, applied.PID); err != nil {
		return err
	}
	if err := a.proven(ctx, m, spec, claim); err != nil {
		return err
	}
	m.control.fresh = true
	m.watch()
	return nil
}

// proven compares where a machine's threads and memory are with its plan and with all others of this host. A machine
// that is not checked does not run, whoever asks for that.
func (a *Agent) proven(ctx context.Context, m *machine, spec hyper.Machine, claim string) error {
	seen, err := a.hyper.Observe(ctx, m.id)
	if err != nil {
		return err
	}
	neighbours, holders := a.ledger.Neighbours(claim)
	if problems := numa.Check(spec.Plan, seen, neighbours); len(problems) > 0 {
		return badPins(problems, holders)
	}
	m.checked.Store(true)
	return nil
}

// run lets a machine run for the first time, and keeps what the hypervisor could not do. resume is the owner's way to
// let it run.
func (m *machine) run(resume func() error) error {
	text, err := json.Marshal(m.applied)
	if err != nil {
		return err
	}
	if err := resume(); err != nil {
		return err
	}
	return os.WriteFile(m.path(appliedFile), text, 0o600)
}
