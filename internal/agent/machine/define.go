package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/network"
	"github.com/grange-project/grange/internal/numa"
)

// The life of a machine, of jobs, workers and cloud VMs alike: define, run, end.

// CloseSockets leaves the sockets of a machine to their owner. QEMU makes them with what its daemon's umask leaves to
// the group, and VMs may share theirs.
func CloseSockets(spec hyper.Machine) error {
	paths := []string{spec.Console}
	for _, p := range spec.Ports {
		paths = append(paths, p.Path)
	}
	for _, path := range paths {
		if err := os.Chmod(path, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("socket of the VM: %w", err)
		}
	}
	return closeDisplay(spec)
}

// Define has the hypervisor make a machine, and brings it to where its first instruction is next. Each step keeps the
// next ones safe: the process is where its owner is charged before it has a network, and nothing connects to a machine
// that does not lie as planned. started takes notice of what was made; claim is the machine's in the ledger.
func (h *Host) Define(ctx context.Context, m *Machine, spec hyper.Machine, vm network.VM, claim string,
	started func(hyper.Applied) error) error {
	applied, err := h.Hyper.Start(ctx, spec)
	if err != nil {
		return err
	}
	if err := CloseSockets(spec); err != nil {
		return err
	}
	if err := started(applied); err != nil {
		return err
	}
	if err := h.Fence(ctx, vm, applied.PID); err != nil {
		return err
	}
	if err := h.Proven(ctx, m, spec, claim); err != nil {
		return err
	}
	m.Control.fresh = true
	m.Watch()
	return nil
}

// Proven compares where a machine's threads and memory are with its plan and with all others of this host. A machine
// that is not checked does not run, whoever asks for that.
func (h *Host) Proven(ctx context.Context, m *Machine, spec hyper.Machine, claim string) error {
	seen, err := h.Hyper.Observe(ctx, m.ID)
	if err != nil {
		return err
	}
	neighbours, holders := h.Ledger.Neighbours(claim)
	if problems := numa.Check(spec.Plan, seen, neighbours); len(problems) > 0 {
		return badPins(problems, holders)
	}
	m.Checked.Store(true)
	return nil
}

// Run lets a machine run for the first time, and keeps what the hypervisor could not do. resume is the owner's way to
// let it run.
func (m *Machine) Run(resume func() error) error {
	if err := resume(); err != nil {
		return err
	}
	return m.KeepApplied()
}

// badPins refuses a VM that the kernel would run elsewhere than planned.
func badPins(problems []numa.Problem, holders []string) error {
	var texts []string
	for _, p := range problems {
		text := p.Message
		if p.Neighbour >= 0 {
			text += " (" + holders[p.Neighbour] + ")"
		}
		texts = append(texts, text)
	}
	return &farm.Error{Kind: farm.Internal, Code: CodeBadPins,
		Message: "the VM's pins are not as planned: " + strings.Join(texts, "; "),
		Hint:    "something else on this host moves QEMU's threads; look for numad or cgroup managers"}
}
