package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/jobrequest"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/agent/services"
	"github.com/grange-project/grange/internal/disk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/seed"
	"github.com/grange-project/grange/internal/vmimage"
)

// The way of jobs' VM from its grant to its guest's first word, and back.

func vmName(job string) string { return machine.NamePrefix + job[:8] }

// attempt makes the machine and waits for its guest's first word.
func (v *making) attempt(image vmimage.Image, number int) error {
	began := time.Now()
	id, name := api.NewID(), vmName(v.id)
	if number > 1 {
		name += fmt.Sprintf("-%d", number) // the last one's domain may not be quite gone
	}
	m := v.agent.machines.New(id, name)
	v.follow(m)
	v.update(func() { v.machine, v.record.VM, v.record.Name, v.record.Attempt = m, id, m.Name, number })
	spec, err := v.prepareDisks(m, image)
	if err != nil {
		return err
	}
	began = v.phase("disk", began)
	if err := v.define(m, spec); err != nil {
		return err
	}
	began = v.phase("define", began)
	v.open()
	for _, w := range m.Applied.Warnings {
		v.publish(api.JobEvent{Event: api.EventWarning, Message: w})
	}
	if v.request.Paused {
		if err := v.awaitResume(); err != nil {
			return err
		}
		began = time.Now()
	}
	if err := v.boot(m); err != nil {
		return err
	}
	if image.Kind == vmimage.Root && !m.Control.TakesRoots() {
		return vmimage.NoKernel("which is of an earlier release", errNoRoots)
	}
	v.phase("boot", began)
	return v.checkGuest(m)
}

// checkGuest refuses a guest that is up and cannot take what its VM has.
func (v *making) checkGuest(m *machine.Machine) error {
	r := v.recordNow()
	return m.CheckGuest(r.Shape, r.Lease != nil && r.Lease.IPv6().IsValid())
}

// prepareDisks makes the VM's directories, disks and seed, and says what machine they belong to.
func (v *making) prepareDisks(m *machine.Machine, image vmimage.Image) (hyper.Machine, error) {
	shape := v.record.Shape
	var err error
	if m.User, err = v.agent.machines.TakeUser(v.ctx, m.Name, v.record.Caller.Batch.Group); err != nil {
		return hyper.Machine{}, err
	}
	spec := hyper.Machine{ID: m.ID, Name: m.Name, Plan: v.record.Plan, Console: m.Path("console"),
		Purpose: shape.Purpose, CPUModel: shape.CPUModel, Cache: shape.Cache,
		Tuning: v.agent.machines.DiskTuning(shape.Purpose), UID: m.User.Own,
		Group: m.User.Group, Watchdog: machine.HasWatchdog(v.agent.config().Heartbeat, image),
		Ports: []hyper.Port{{Name: guest.ControlPort, Path: m.Path(guest.ControlPort)}}}
	for number := range v.ports {
		name := guest.JobPort(number)
		spec.Ports = append(spec.Ports, hyper.Port{Name: name, Path: m.Path(name)})
	}
	spec.Ports = append(spec.Ports, services.Port(v.record.Services, m.Path)...)
	if err := os.Mkdir(m.Sockets, 0o711); err != nil {
		return spec, fmt.Errorf("directory for sockets: %w", err)
	}
	m.Made = true
	if image.Kind != vmimage.Disk {
		k := v.kernel
		spec.Boot = hyper.Boot{Kernel: k.Kernel(), Initrd: k.Initrd(), Cmdline: k.Cmdline}
		if image.Kind == vmimage.Root {
			spec.Disks = []hyper.Disk{{Serial: jobrequest.RootSerial, Path: image.Root(), Format: "raw",
				ReadOnly: true}}
		}
	} else if spec.Disks, err = v.systemDisks(m, image); err != nil {
		return spec, err
	} else {
		spec.Boot.UEFI = image.Firmware == vmimage.UEFI
	}
	scratch, err := v.agent.machines.MakeScratch(v.ctx, m, shape)
	if err != nil {
		return spec, err
	}
	spec.Disks = append(spec.Disks, scratch...)
	if err := v.agent.machines.Areas.Jobs.Give(m.Name, m.User.UID, m.User.GID); err != nil {
		return spec, err
	}
	if err = v.serveBinds(m, &spec); err != nil {
		return spec, err
	}
	vm := v.record.networkVM(m.Name)
	if spec.Card, err = v.agent.machines.NetworkCard(v.ctx, vm); err != nil {
		return spec, err
	}
	spec.Metadata, err = v.record.encode()
	return spec, err
}

// systemDisks are a full image's throw-away root and the seed that brings grange-guest in.
func (v *making) systemDisks(m *machine.Machine, image vmimage.Image) ([]hyper.Disk, error) {
	root, err := v.agent.machines.MakeRoot(v.ctx, m, image, v.record.Shape)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(m.Disks, disk.SeedFile)
	if err := (seed.Seed{ID: m.ID, Hostname: v.record.hostname(),
		Guest: v.agent.guestFile}).WriteFile(path); err != nil {
		return nil, err
	}
	return []hyper.Disk{root, {Serial: "seed", Path: path, Format: "raw", ReadOnly: true, CDROM: true}}, nil
}

// define makes the VM for the jobs that are in it.
func (v *making) define(m *machine.Machine, spec hyper.Machine) error {
	if jobs := v.inside(); len(jobs) > 0 {
		spec.Enter = jobs[0].enters(v.agent.log)
		spec.Held = func() bool { return machine.Frozen(jobs[0].caller.PID) }
	}
	err := v.agent.machines.Define(v.ctx, m, spec, v.record.networkVM(m.Name), v.id, func(applied hyper.Applied) error {
		v.update(func() { m.Applied = applied })
		return v.adoptFirst(applied)
	})
	if err != nil {
		return err
	}
	for number := range v.ports { // all tasks of a batch job are one user's
		if err := os.Lchown(m.Path(guest.JobPort(number)), int(v.owner.UID), -1); err != nil {
			return err
		}
	}
	return nil
}

// adoptFirst puts the VM's process where the first of its jobs is tracked.
func (v *making) adoptFirst(applied hyper.Applied) error {
	jobs := v.inside()
	if len(jobs) == 0 {
		return errCallerGone
	}
	v.update(func() { v.home = jobs[0] })
	return adopt(jobs[0].caller.Batch.Cgroups, applied)
}

// open lets jobs connect to their ports.
func (v *making) open() {
	v.update(func() {
		v.defined = true
		for _, j := range v.jobs {
			v.showLocked(j)
		}
	})
}

// awaitResume waits for somebody to resume a VM that was asked for paused.
func (v *making) awaitResume() error {
	v.power.Hold()
	v.publish(api.JobEvent{Event: api.EventPaused})
	for {
		v.mu.Lock()
		changed := v.changed
		v.mu.Unlock()
		if !v.power.Now().Suspended {
			return nil
		}
		select {
		case <-changed:
		case <-v.ctx.Done():
			return context.Cause(v.ctx)
		}
	}
}

// boot lets the VM run and waits for its guest's first word.
func (v *making) boot(m *machine.Machine) error {
	v.agent.Usage.Begin(v.id, v.usage(), m.Applied.PID, m.Applied.Started)
	err := m.Run(func() error { return v.power.Start(v.ctx, m) })
	if err != nil {
		return err
	}
	timeout := v.agent.config().BootTimeout
	for err = errBootTimeout; errors.Is(err, errBootTimeout); {
		ctx, cancel := context.WithTimeoutCause(v.ctx, timeout, errBootTimeout)
		_, err = m.Control.Wait(ctx, v.id, func(s guest.State) bool { return s.Phase != "" })
		cancel()
		if !machine.Frozen(m.Applied.PID) && v.power.Now() == (machine.Wanted{}) {
			break // what was stopped meanwhile has its time again
		}
	}
	switch {
	case errors.Is(err, errBootTimeout):
		err = &farm.Error{Kind: farm.Unavailable, Code: machine.CodeGuestSilent,
			Message: fmt.Sprintf("the guest did not come up within %v%s", timeout, m.LastWords()),
			Hint:    "try the image by hand, or raise boot_timeout"}
	case errors.Is(err, machine.ErrGone):
		err = &farm.Error{Kind: farm.Unavailable, Code: machine.CodeGuestSilent,
			Message: "the VM ended before its guest came up" + m.LastWords(),
			Hint:    "a kernel panic, or a memory size too small for the image"}
	}
	return err
}

var errBootTimeout = errors.New("boot timeout")

// discard ends the machine, if there is one, and removes all it had. What cannot be removed now is swept later.
func (v *making) discard() {
	v.mu.Lock()
	m := v.machine
	v.machine, v.defined = nil, false
	v.mu.Unlock()
	v.power.Drop()
	if m == nil {
		return
	}
	v.agent.Usage.Look(v.id)
	for !v.stopped(m) {
		select { // what still runs keeps its CPUs and its files
		case <-time.After(5 * time.Second):
		case <-v.agent.ctx.Done():
			m.Unwatch()
			return
		}
	}
	m.Unwatch()
	v.agent.machines.ReleaseNetwork(m.Name, v.recordNow().Shape.Network)
	v.agent.machines.RemoveFiles(m)
}

func (v *making) stopped(m *machine.Machine) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := v.agent.hyper.Stop(ctx, m.ID)
	if err == nil {
		err = machine.EndShares(m.Sockets) // they have the guest's memory, too
	}
	if err != nil {
		v.log().Error("vm does not end", "error", err)
	}
	return err == nil
}

// detach leaves the VM to the next agent.
func (v *making) detach() {
	if m := v.machine; m != nil {
		m.Unwatch()
	}
}
