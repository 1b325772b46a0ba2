package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/disk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/seed"
	"github.com/grange-project/grange/internal/vmimage"
)

// machine is one VM and what it has on the host: a directory of sockets and one of disks.
type machine struct {
	id, name string
	sockets  string // directory
	disks    string // directory; there is none without disks
	applied  hyper.Applied
	control  *control
	console  *console
	made     bool        // the directories are ours, and nobody else's
	checked  atomic.Bool // pins are as planned: its CPUs may run
	cancel   context.CancelFunc
	watching sync.WaitGroup
}

// appliedFile keeps what the hypervisor could not do, over a restart of the agent. It is written right behind the first
// instruction, and before any job is handed over: a VM without it has no job.
const appliedFile = "applied.json"

func (a *Agent) newMachine(id, name string) *machine {
	c := a.config()
	m := &machine{id: id, name: name, sockets: filepath.Join(c.RunDir, "vm", name), disks: filepath.Join(a.disksDir(), name)}
	m.control = newControl(m.path(guest.ControlPort))
	m.console = newConsole(m.path("console"))
	return m
}

// disksDir holds a directory of disks for each VM that has any.
func (a *Agent) disksDir() string { return filepath.Join(a.config().StateDir, "vm") }

func (m *machine) path(name string) string { return filepath.Join(m.sockets, name) }

// watch connects to the VM until unwatch.
func (m *machine) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.watching.Go(func() { m.control.run(ctx) })
	m.watching.Go(func() { m.console.run(ctx) })
}

func (m *machine) unwatch() {
	if m.cancel != nil {
		m.cancel()
		m.watching.Wait()
	}
}

// lastWords is the end of the console, and the kernel's reason to panic if it gave one, ready to follow a sentence.
func (m *machine) lastWords() string {
	m.console.awaitEnd(time.Second)
	const lines = 12
	words, last := "", m.console.lastLines(lines)
	for line := range strings.Lines(m.console.lastLines(consoleTail)) {
		if _, reason, ok := strings.Cut(line, "Kernel panic - "); ok {
			words = " in a kernel panic (" + strings.TrimSpace(reason) + ")"
			break
		}
	}
	if last == "" {
		return words + "; its console is empty"
	}
	return words + "; the end of its console:\n  " + strings.ReplaceAll(last, "\n", "\n  ")
}

// vmPrefix starts the name of every VM of ours.
const vmPrefix = "grange-"

func vmName(job string) string { return vmPrefix + job[:8] }

// attempt makes one VM for the job and waits for its guest's first word.
func (j *job) attempt(image vmimage.Image, number int) error {
	began := time.Now()
	id, name := api.NewID(), vmName(j.id)
	if number > 1 {
		name += fmt.Sprintf("-%d", number) // the last one's domain may not be quite gone
	}
	m := j.agent.newMachine(id, name)
	j.update(func() { j.machine, j.record.VM, j.record.Name, j.record.Attempt = m, id, m.name, number })
	spec, err := j.prepareDisks(m, image)
	if err != nil {
		return err
	}
	began = j.phase("disk", began)
	if err := j.define(m, spec); err != nil {
		return err
	}
	began = j.phase("define", began)
	j.publish(api.JobEvent{Event: api.EventVM, VM: j.view()})
	for _, w := range m.applied.Warnings {
		j.publish(api.JobEvent{Event: api.EventWarning, Message: w})
	}
	if j.request.Paused {
		if err := j.awaitResume(); err != nil {
			return err
		}
		began = time.Now()
	}
	if err := j.boot(m); err != nil {
		return err
	}
	j.phase("boot", began)
	return nil
}

// prepareDisks makes the VM's directories, disks and seed, and says what machine they belong to.
func (j *job) prepareDisks(m *machine, image vmimage.Image) (hyper.Machine, error) {
	shape := j.record.Shape
	spec := hyper.Machine{ID: m.id, Name: m.name, Plan: j.record.Plan, Console: m.path("console"), Network: shape.Network,
		Purpose: shape.Purpose, CPUModel: shape.CPUModel, Cache: shape.Cache, Group: j.caller.Batch.Group,
		Ports: []hyper.Port{{Name: guest.ControlPort, Path: m.path(guest.ControlPort)}, {Name: guest.JobPort, Path: m.path(guest.JobPort)}}}
	var err error
	if err := os.Mkdir(m.sockets, 0o711); err != nil {
		return spec, fmt.Errorf("directory for sockets: %w", err)
	}
	m.made = true
	if image.Kind == vmimage.Kernel {
		spec.Boot = hyper.Boot{Kernel: image.Kernel(), Initrd: image.Initrd(), Cmdline: image.Cmdline}
	} else if spec.Disks, err = j.systemDisks(m, image); err != nil {
		return spec, err
	}
	if size := shape.Scratch; size > 0 {
		path, err := j.agent.disks.Scratch(j.ctx, m.name, size)
		if err != nil {
			return spec, err
		}
		spec.Disks = append(spec.Disks, hyper.Disk{Serial: scratchSerial, Path: path, Format: "raw"})
	}
	spec.Metadata, err = j.record.encode()
	return spec, err
}

const scratchSerial = "scratch"

// systemDisks are a full image's throw-away overlay and the seed that brings grange-guest in.
func (j *job) systemDisks(m *machine, image vmimage.Image) ([]hyper.Disk, error) {
	overlay, err := j.agent.disks.Overlay(j.ctx, m.name, disk.Base{Path: image.Disk(), Format: image.Format, Size: image.VirtualSize}, 0, 0)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(filepath.Dir(overlay), "seed.iso")
	if err := (seed.Seed{ID: m.id, Hostname: m.name, Guest: j.agent.guestFile}).WriteFile(path, j.agent.uid, j.agent.gid); err != nil {
		return nil, err
	}
	return []hyper.Disk{
		{Serial: "root", Path: overlay, Format: "qcow2"},
		{Serial: "seed", Path: path, Format: "raw", ReadOnly: true, CDROM: true},
	}, nil
}

// define makes the VM, stopped, and checks its pins before its first instruction.
func (j *job) define(m *machine, spec hyper.Machine) error {
	applied, err := j.agent.hyper.Start(j.ctx, spec)
	if err != nil {
		return err
	}
	j.update(func() { m.applied = applied })
	if err := j.adopt(applied.PID); err != nil {
		return err
	}
	seen, err := j.agent.hyper.Observe(j.ctx, m.id)
	if err != nil {
		return err
	}
	neighbours, holders := j.agent.ledger.neighbours(j.id)
	if problems := numa.Check(spec.Plan, seen, neighbours); len(problems) > 0 {
		return badPins(problems, holders)
	}
	m.control.fresh = true
	m.checked.Store(true)
	m.watch()
	return os.Lchown(m.path(guest.JobPort), int(j.caller.UID), -1)
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
	return &farm.Error{Kind: farm.Internal, Code: farm.CodeBadPins, Message: "the VM's pins are not as planned: " + strings.Join(texts, "; "),
		Hint: "something else on this host moves QEMU's threads; look for numad or cgroup managers"}
}

// awaitResume waits for somebody to resume a VM that was asked for paused.
func (j *job) awaitResume() error {
	j.update(func() { j.suspended = true })
	j.publish(api.JobEvent{Event: api.EventPaused})
	for {
		j.mu.Lock()
		suspended, changed := j.suspended, j.changed
		j.mu.Unlock()
		if !suspended {
			return nil
		}
		if err := j.await(changed); err != nil {
			return err
		}
	}
}

// boot lets the VM run and waits for its guest's first word.
func (j *job) boot(m *machine) error {
	text, err := json.Marshal(m.applied)
	if err != nil {
		return err
	}
	if err := j.agent.hyper.Resume(j.ctx, m.id); err != nil {
		return err
	}
	if err := os.WriteFile(m.path(appliedFile), text, 0o644); err != nil {
		return err
	}
	timeout := j.agent.config().BootTimeout
	ctx, cancel := context.WithTimeoutCause(j.ctx, timeout, errBootTimeout)
	defer cancel()
	_, err = m.control.wait(ctx, func(s guest.State) bool { return s.Phase != "" })
	switch {
	case errors.Is(err, errBootTimeout):
		err = &farm.Error{Kind: farm.Unavailable, Code: farm.CodeGuestSilent, Message: fmt.Sprintf("the guest did not come up within %v%s", timeout, m.lastWords()), Hint: "try the image by hand, or raise boot_timeout"}
	case errors.Is(err, errGone):
		err = &farm.Error{Kind: farm.Unavailable, Code: farm.CodeGuestSilent, Message: "the VM ended before its guest came up" + m.lastWords(), Hint: "a kernel panic, or a memory size too small for the image"}
	}
	return err
}

var errBootTimeout = errors.New("boot timeout")

// discard ends the job's VM, if there is one, and removes all it had. What cannot be removed now is swept later.
func (j *job) discard() {
	j.mu.Lock()
	m := j.machine
	j.machine = nil
	j.mu.Unlock()
	if m == nil {
		return
	}
	for !j.stopped(m) {
		select { // what still runs keeps its CPUs and its files
		case <-time.After(5 * time.Second):
		case <-j.agent.ctx.Done():
			m.unwatch()
			return
		}
	}
	m.unwatch()
	j.agent.removeFiles(m)
}

func (j *job) stopped(m *machine) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := j.agent.hyper.Stop(ctx, m.id)
	if err != nil {
		j.agent.log.Error("vm does not end", "vm", m.name, "error", err)
	}
	return err == nil
}

// detach leaves the VM to the next agent.
func (j *job) detach() {
	if m := j.machine; m != nil {
		m.unwatch()
	}
}

func (a *Agent) removeFiles(m *machine) {
	if !m.made {
		return
	}
	for _, dir := range []string{m.sockets, m.disks} {
		if err := os.RemoveAll(dir); err != nil {
			a.log.Error("files of a vm stay", "vm", m.name, "error", err)
		}
	}
}
