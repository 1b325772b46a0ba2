package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/procstat"
)

// driver is a hypervisor whose machines are processes. What it knows of them is in files, so that any agent finds them.
type driver struct {
	dir         string
	hyper.Mover // nothing moves here
}

func (d driver) QEMUOwner(context.Context) (int, int, error) { return os.Getuid(), os.Getgid(), nil }

func (d driver) OwnGroup(_ context.Context, uid, _ uint32) (uint32, string, error) {
	return uid, "", nil
}

func (d driver) Start(ctx context.Context, m hyper.Machine) (hyper.Applied, error) {
	if err := m.Check(); err != nil {
		return hyper.Applied{}, err
	}
	s := spec{ID: m.ID, Name: m.Name, Control: m.Ports[0].Path, Metadata: m.Metadata,
		Emulator: m.Plan.Emulator.String()}
	for _, c := range m.Plan.Cells {
		s.Nodes = append(s.Nodes, c.Node)
	}
	slices.Sort(s.Nodes)
	s.Nodes = slices.Compact(s.Nodes)
	for _, v := range m.Plan.VCPUs {
		s.VCPUs = append(s.VCPUs, v.String())
	}
	for _, what := range []string{"pid", "state"} {
		if err := os.Remove(file(d.dir, m.ID, what)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return hyper.Applied{}, err
		}
	}
	for _, p := range m.Ports[1:] {
		if err := os.WriteFile(p.Path, nil, 0o600); err != nil {
			return hyper.Applied{}, err
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		return hyper.Applied{}, err
	}
	if err := os.WriteFile(file(d.dir, m.ID, "json"), text, 0o600); err != nil {
		return hyper.Applied{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return hyper.Applied{}, err
	}
	if err := exec.CommandContext(ctx, self, "spawn", d.dir, m.ID).Run(); err != nil {
		return hyper.Applied{}, err
	}
	for pidOf(d.dir, m.ID) == 0 {
		select {
		case <-ctx.Done():
			return hyper.Applied{}, ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
	pid := pidOf(d.dir, m.ID)
	started, err := procstat.Started(pid)
	return hyper.Applied{Accelerator: "tcg", CPUMode: "maximum", PID: pid, Started: started, UID: m.UID}, err
}

func (d driver) set(id, state string) error {
	if _, err := d.found(id); err != nil {
		return err
	}
	return os.WriteFile(file(d.dir, id, "state"), []byte(state), 0o600)
}

func (d driver) Resume(_ context.Context, id string) error  { return d.set(id, runState) }
func (d driver) Suspend(_ context.Context, id string) error { return d.set(id, "paused") }

func (d driver) Shutdown(_ context.Context, id string) error {
	if _, err := d.found(id); err != nil {
		return err
	}
	return syscall.Kill(pidOf(d.dir, id), syscall.SIGTERM)
}

func (d driver) Stop(ctx context.Context, id string) error {
	f, err := d.found(id)
	if err != nil {
		return nil
	}
	noteClock(d.dir, id, f.PID)
	if err := syscall.Kill(f.PID, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
		return err
	}
	for {
		if started, err := procstat.Started(f.PID); err != nil || started != f.Started {
			return os.Remove(file(d.dir, id, "json"))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// found is a machine whose process is there.
func (d driver) found(id string) (f hyper.Found, err error) {
	var s spec
	text, err := os.ReadFile(file(d.dir, id, "json"))
	if err != nil {
		return f, hyper.NoMachine(id)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return f, hyper.NoMachine(id)
	}
	f = hyper.Found{ID: s.ID, Name: s.Name, Metadata: s.Metadata, State: hyper.Paused, PID: pidOf(d.dir, id)}
	if f.Started, err = procstat.Started(f.PID); err != nil {
		return f, hyper.NoMachine(id)
	}
	if state, _ := os.ReadFile(file(d.dir, id, "state")); string(state) == runState {
		f.State = hyper.Running
	}
	return f, nil
}

func (d driver) List(context.Context) ([]hyper.Found, error) {
	paths, err := filepath.Glob(filepath.Join(d.dir, "*.json"))
	all := []hyper.Found{}
	for _, path := range paths {
		if f, err := d.found(strings.TrimSuffix(filepath.Base(path), ".json")); err == nil {
			all = append(all, f)
		}
	}
	return all, err
}

func (d driver) State(_ context.Context, id string) (hyper.State, error) {
	f, err := d.found(id)
	if err != nil {
		return hyper.Gone, nil
	}
	return f.State, nil
}

func (d driver) Observe(_ context.Context, id string) (o numa.Observed, err error) {
	if _, err := d.found(id); err != nil {
		return o, err
	}
	var s spec
	text, err := os.ReadFile(file(d.dir, id, "json"))
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return o, err
	}
	o.Nodes = s.Nodes
	if o.Emulator, err = farm.ParseCPUSet(s.Emulator); err != nil {
		return o, err
	}
	for _, text := range s.VCPUs {
		cpus, err := farm.ParseCPUSet(text)
		if err != nil {
			return o, err
		}
		o.VCPUs = append(o.VCPUs, cpus)
	}
	return o, nil
}

func (d driver) Sweep(context.Context) error { return nil }
func (d driver) Daemon() hyper.Daemon        { return hyper.Daemon{} }

func (d driver) Events(ctx context.Context) <-chan hyper.Event {
	none := make(chan hyper.Event)
	context.AfterFunc(ctx, func() { close(none) })
	return none
}
