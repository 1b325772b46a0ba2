package agent

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
)

// The hypervisor stops a VM's CPUs when the host's file system has no space for what its guest writes. Disks are
// promised before a VM starts, so something else has filled it. Of jobs' VMs one after the other ends, the first that
// was stopped first: its disks go, and those behind it may go on. Cloud VMs keep what they wrote, and wait for space.

const (
	spaceToGoOn = 64 * farm.MiB // with less free, a VM that goes on is stopped again at once
	endOfFull   = time.Minute   // for a VM that ends to give its disks back
	resumeLimit = 10 * time.Second
)

// freeSpace is what a directory's file system has left.
func freeSpace(dir string) (farm.Bytes, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return farm.Bytes(s.Bavail) * farm.Bytes(s.Bsize), nil
}

func (a *Agent) spaceAgain() bool {
	free, err := a.freeSpace(a.config().StateDir)
	return err == nil && free >= spaceToGoOn
}

func (a *Agent) diskFull(what string) error {
	return &farm.Error{Kind: farm.Unavailable, Code: CodeVMDiskFull,
		Hint:    "free space there; `grange host show` says how much is left, and what was promised to disks of VMs",
		Message: fmt.Sprintf("the file system of %s on the host is full; %s", a.config().StateDir, what)}
}

// noSpace deals with a machine that stands still for want of space.
func (a *Agent) noSpace(machine string) {
	if v := a.fleetByID(machine); v != nil {
		v.standStill(true)
		return
	}
	a.full.Lock() // one at a time: the end of one may be space for the next
	defer a.full.Unlock()
	for _, v := range a.all() {
		if m := v.current(); m != nil && m.id == machine {
			v.endFull(m)
		}
	}
}

// endFull ends the VM of jobs, unless there is space again.
func (v *vm) endFull(m *machine) {
	if v.agent.spaceAgain() {
		err := v.power.goOn(m)
		if err == nil {
			v.log().Info("vm goes on, there is space again")
			return
		}
		v.log().Error("vm does not go on", "error", err)
	}
	v.log().Error("vm ends, its disks find no space on the host")
	v.cancel(v.agent.diskFull("the VM could not write to its disks, and was ended"))
	select {
	case <-v.over:
	case <-time.After(endOfFull):
	case <-v.agent.ctx.Done():
	}
}

// goOn continues a machine that the hypervisor has stopped by itself, unless somebody wants it stopped.
func (p *power) goOn(m *machine) error {
	p.acting.Lock()
	defer p.acting.Unlock()
	if p.now() != (wanted{}) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), resumeLimit)
	defer cancel()
	return p.hyper.Resume(ctx, m.id)
}

// standStill notes whether the cloud VM waits for space.
func (v *fleetVM) standStill(full bool) {
	v.update(func() { v.full = full })
	if full {
		v.log().Error("cloud VM stands still, its disks find no space on the host")
	} else {
		v.log().Info("cloud VM goes on, there is space again")
	}
	v.poke()
}

// goOn continues a VM that waits for space, once there is some.
func (v *fleetVM) goOn() {
	v.mu.Lock()
	m, full := v.machine, v.full
	v.mu.Unlock()
	if m == nil || !full || !v.agent.spaceAgain() {
		return
	}
	ctx, cancel := context.WithTimeout(v.agent.ctx, resumeLimit)
	defer cancel()
	v.standStill(false) // first: it may be stopped again at once
	if err := v.agent.hyper.Resume(ctx, m.id); err != nil {
		v.log().Error("cloud VM does not go on", "error", err)
		v.standStill(true)
	}
}
