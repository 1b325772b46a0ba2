package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/disk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/network"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/seed"
	"github.com/grange-project/grange/internal/vmimage"
)

// machine is one VM and what it has on the host: a directory of sockets and one of disks.
type machine struct {
	id, name string
	sockets  string // directory
	disks    string // directory; there is none without disks
	user     user
	applied  hyper.Applied
	control  *control
	console  *console
	pulse    *heartbeat
	sight    sight
	made     bool        // the directories are ours, and nobody else's
	checked  atomic.Bool // pins are as planned: its CPUs may run
	cancel   context.CancelFunc
	done     <-chan struct{} // from watch on: closed by unwatch
	watching sync.WaitGroup
}

// appliedFile keeps what the hypervisor could not do, over a restart of the agent. It is written right behind the first
// instruction, and before any job is handed over: a VM without it has no job.
const appliedFile = "applied.json"

func (a *Agent) newMachine(id, name string) *machine {
	c := a.config()
	m := &machine{id: id, name: name, sockets: filepath.Join(c.RunDir, "vm", name),
		disks: filepath.Join(a.disksDir(), name)}
	m.control = newControl(m.path(guest.ControlPort))
	m.control.views = m.sight.take
	m.console = newConsole(m.path("console"))
	m.pulse = &heartbeat{control: m.control, settings: func() config.Heartbeat { return a.config().Heartbeat },
		state:   func(ctx context.Context) (hyper.State, error) { return a.hyper.State(ctx, id) },
		stopped: func() bool { return frozen(m.applied.PID) },
		expires: pace{burst: 5, rate: paceOfGuest}}
	return m
}

// disksDir holds a directory of disks for each VM that has any.
func (a *Agent) disksDir() string { return filepath.Join(a.config().StateDir, "vm") }

func (m *machine) path(name string) string { return filepath.Join(m.sockets, name) }

// watch connects to the VM until unwatch.
func (m *machine) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel, m.done = cancel, ctx.Done()
	m.watching.Go(func() { m.control.run(ctx) })
	m.watching.Go(func() { m.console.run(ctx) })
	m.watching.Go(func() { m.pulse.run(ctx) })
}

func (m *machine) unwatch() {
	if m.cancel != nil {
		m.cancel()
		m.watching.Wait()
	}
}

// maxLastWords bounds how much of a console becomes part of a message, in bytes.
const maxLastWords = 3000

// lastWords is the end of the console, and the kernel's reason to panic if it gave one, ready to follow a sentence.
// What the guest wrote stands in lines of its own: who may not read the console is shown the first line alone.
func (m *machine) lastWords() string {
	m.console.awaitEnd(time.Second)
	return quoted(m.console.lastLines(consoleTail))
}

// quoted is the end of a console as lastWords puts it.
func quoted(console string) string {
	const most = 12
	lines := strings.Split(strings.TrimRight(console, "\n"), "\n")
	last := strings.Join(lines[max(0, len(lines)-most):], "\n")
	words := "; "
	for _, line := range lines {
		if strings.Contains(line, "Kernel panic - ") {
			words = " in a kernel panic; "
			if !strings.Contains(last, line) {
				last = farm.Clean(line, 200) + "\n" + last
			}
			break
		}
	}
	if last == "" {
		return words + "its console is empty"
	}
	return words + farm.ConsoleFollows + "\n  " + strings.ReplaceAll(farm.CleanLines(last, maxLastWords), "\n", "\n  ")
}

// vmPrefix starts the name of every VM of ours.
const vmPrefix = "grange-"

func vmName(job string) string { return vmPrefix + job[:8] }

// attempt makes the machine and waits for its guest's first word.
func (v *vm) attempt(image vmimage.Image, number int) error {
	began := time.Now()
	id, name := api.NewID(), vmName(v.id)
	if number > 1 {
		name += fmt.Sprintf("-%d", number) // the last one's domain may not be quite gone
	}
	m := v.agent.newMachine(id, name)
	v.follow(m)
	v.update(func() { v.machine, v.record.VM, v.record.Name, v.record.Attempt = m, id, m.name, number })
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
	for _, w := range m.applied.Warnings {
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
	v.phase("boot", began)
	return nil
}

// prepareDisks makes the VM's directories, disks and seed, and says what machine they belong to.
func (v *vm) prepareDisks(m *machine, image vmimage.Image) (hyper.Machine, error) {
	shape := v.record.Shape
	var err error
	if m.user, err = v.agent.takeUser(v.ctx, m.name, v.record.Caller.Batch.Group); err != nil {
		return hyper.Machine{}, err
	}
	spec := hyper.Machine{ID: m.id, Name: m.name, Plan: v.record.Plan, Console: m.path("console"),
		Purpose: shape.Purpose, CPUModel: shape.CPUModel, Cache: shape.Cache, UID: m.user.own,
		Group: m.user.group, Watchdog: hasWatchdog(v.agent.config().Heartbeat, image),
		Ports: []hyper.Port{{Name: guest.ControlPort, Path: m.path(guest.ControlPort)}}}
	for number := range v.ports {
		name := guest.JobPort(number)
		spec.Ports = append(spec.Ports, hyper.Port{Name: name, Path: m.path(name)})
	}
	if err := os.Mkdir(m.sockets, 0o711); err != nil {
		return spec, fmt.Errorf("directory for sockets: %w", err)
	}
	m.made = true
	if image.Kind == vmimage.Kernel {
		spec.Boot = hyper.Boot{Kernel: image.Kernel(), Initrd: image.Initrd(), Cmdline: image.Cmdline}
	} else if spec.Disks, err = v.systemDisks(m, image); err != nil {
		return spec, err
	}
	if size := shape.Scratch; size > 0 {
		path, err := v.agent.disks.Scratch(v.ctx, m.name, size)
		if err != nil {
			return spec, err
		}
		spec.Disks = append(spec.Disks, hyper.Disk{Serial: scratchSerial, Path: path, Format: "raw"})
	}
	if err := v.agent.disks.Give(m.name, m.user.uid, m.user.gid); err != nil {
		return spec, err
	}
	vm := network.VM{Name: m.name, Network: shape.Network}
	if w := v.record.Worker; w != nil {
		vm.MAC = w.MAC
	}
	if spec.Card, err = network.Of(vm.Network).Prepare(v.ctx, vm); err != nil {
		return spec, err
	}
	spec.Metadata, err = v.record.encode()
	return spec, err
}

const scratchSerial = "scratch"

// systemDisks are a full image's throw-away overlay and the seed that brings grange-guest in.
func (v *vm) systemDisks(m *machine, image vmimage.Image) ([]hyper.Disk, error) {
	overlay, err := v.agent.disks.Overlay(v.ctx, m.name,
		disk.Base{Path: image.Disk(), Format: image.Format, Size: image.VirtualSize}, 0)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(filepath.Dir(overlay), disk.SeedFile)
	if err := (seed.Seed{ID: m.id, Hostname: m.name, Guest: v.agent.guestFile}).WriteFile(path); err != nil {
		return nil, err
	}
	return []hyper.Disk{
		{Serial: "root", Path: overlay, Format: "qcow2", Base: image.Disk()},
		{Serial: "seed", Path: path, Format: "raw", ReadOnly: true, CDROM: true},
	}, nil
}

// define makes the VM for the jobs that are in it.
func (v *vm) define(m *machine, spec hyper.Machine) error {
	if jobs := v.inside(); len(jobs) > 0 {
		spec.Enter = jobs[0].enters(v.agent.log)
		spec.Held = func() bool { return frozen(jobs[0].caller.PID) }
	}
	err := v.agent.define(v.ctx, m, spec, v.record.Shape.Network, v.id, func(applied hyper.Applied) error {
		v.update(func() { m.applied = applied })
		return v.adoptFirst(applied)
	})
	if err != nil {
		return err
	}
	for number := range v.ports { // all tasks of a batch job are one user's
		if err := os.Lchown(m.path(guest.JobPort(number)), int(v.uid), -1); err != nil {
			return err
		}
	}
	return nil
}

// adoptFirst puts the VM's process where the first of its jobs is tracked.
func (v *vm) adoptFirst(applied hyper.Applied) error {
	jobs := v.inside()
	if len(jobs) == 0 {
		return errCallerGone
	}
	v.update(func() { v.home = jobs[0] })
	return jobs[0].adopt(applied)
}

// open lets jobs connect to their ports.
func (v *vm) open() {
	v.update(func() {
		v.defined = true
		for _, j := range v.jobs {
			v.showLocked(j)
		}
	})
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

// awaitResume waits for somebody to resume a VM that was asked for paused.
func (v *vm) awaitResume() error {
	v.power.hold()
	v.publish(api.JobEvent{Event: api.EventPaused})
	for {
		v.mu.Lock()
		changed := v.changed
		v.mu.Unlock()
		if !v.power.now().Suspended {
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
func (v *vm) boot(m *machine) error {
	err := m.run(func() error { return v.power.start(v.ctx, m) })
	if err != nil {
		return err
	}
	timeout := v.agent.config().BootTimeout
	for err = errBootTimeout; errors.Is(err, errBootTimeout); {
		ctx, cancel := context.WithTimeoutCause(v.ctx, timeout, errBootTimeout)
		_, err = m.control.wait(ctx, v.id, func(s guest.State) bool { return s.Phase != "" })
		cancel()
		if !frozen(m.applied.PID) && v.power.now() == (wanted{}) {
			break // what was stopped meanwhile has its time again
		}
	}
	switch {
	case errors.Is(err, errBootTimeout):
		err = &farm.Error{Kind: farm.Unavailable, Code: CodeGuestSilent,
			Message: fmt.Sprintf("the guest did not come up within %v%s", timeout, m.lastWords()),
			Hint:    "try the image by hand, or raise boot_timeout"}
	case errors.Is(err, errGone):
		err = &farm.Error{Kind: farm.Unavailable, Code: CodeGuestSilent,
			Message: "the VM ended before its guest came up" + m.lastWords(),
			Hint:    "a kernel panic, or a memory size too small for the image"}
	}
	return err
}

var errBootTimeout = errors.New("boot timeout")

// discard ends the machine, if there is one, and removes all it had. What cannot be removed now is swept later.
func (v *vm) discard() {
	v.mu.Lock()
	m := v.machine
	v.machine, v.defined = nil, false
	v.mu.Unlock()
	v.power.drop()
	if m == nil {
		return
	}
	for !v.stopped(m) {
		select { // what still runs keeps its CPUs and its files
		case <-time.After(5 * time.Second):
		case <-v.agent.ctx.Done():
			m.unwatch()
			return
		}
	}
	m.unwatch()
	v.agent.releaseNetwork(m.name, v.recordNow().Shape.Network)
	v.agent.removeFiles(m)
}

func (v *vm) stopped(m *machine) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := v.agent.hyper.Stop(ctx, m.id)
	if err != nil {
		v.log().Error("vm does not end", "error", err)
	}
	return err == nil
}

// detach leaves the VM to the next agent.
func (v *vm) detach() {
	if m := v.machine; m != nil {
		m.unwatch()
	}
}

func (a *Agent) removeFiles(m *machine) {
	defer a.returnUser(m.name)
	if !m.made {
		return
	}
	for _, dir := range []string{m.sockets, m.disks} {
		if err := os.RemoveAll(dir); err != nil {
			a.log.Error("files of a vm stay", "vm", m.name, "error", err)
		}
	}
}
