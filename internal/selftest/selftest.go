// Package selftest measures a host with an agent: it runs jobs as anybody would, by `grange exec`, and looks at their
// VMs from outside. What the measurements mean is for package verdict.
package selftest

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
	"github.com/grange-project/grange/internal/rawqemu"
	"github.com/grange-project/grange/internal/selftest/report"
	"github.com/grange-project/grange/internal/selftest/verdict"
	"github.com/grange-project/grange/internal/sleep"
	"github.com/grange-project/grange/internal/tuning/verify"
	"github.com/grange-project/grange/internal/wire"
)

// Config is what a self test needs of its host.
type Config struct {
	Client    *api.Client
	Socket    string // of the agent
	Grange    string // this program
	GuestFile string // grange-guest, which has the probes
	Image     string // "": the agent's own choice
	Facts     farm.HostFacts
	Version   string
	Jobs      int      // of the check for leaks
	Only      []string // names of checks; empty: all
	Site      bool     // the report may name the site
	Progress  io.Writer
	Paths     Paths
	VMUIDs    farm.UIDs

	Answer func(context.Context) (time.Duration, error)                // how long libvirt needs to say what QEMU can do
	Prove  func(context.Context) (verify.Report, error)                // as `grange tune verify`
	Raw    func(image string) (g rawqemu.Guest, why string, err error) // why: QEMU alone cannot boot it
}

// Paths are where the agent and libvirt keep what jobs could leave behind.
type Paths struct{ State, Run, Libvirt, LibvirtLogs string }

// tester is one self test.
type tester struct {
	Config
	room     verdict.Room
	image    string
	machines map[string]verdict.Machine // by name of their shape

	mu  sync.Mutex
	own map[string]bool // IDs of our VMs, and their names
}

// limits are how long a check may take; those that are not named have a minute.
var limits = map[string]time.Duration{
	verdict.KVM: 5 * time.Minute, verdict.Confinement: 5 * time.Minute, verdict.Memory: 5 * time.Minute,
	verdict.Shapes: 15 * time.Minute, verdict.Pins: 15 * time.Minute, verdict.Topology: 15 * time.Minute,
	verdict.Pages2M: 5 * time.Minute, verdict.Pages1G: 5 * time.Minute,
	verdict.Streams: 5 * time.Minute, verdict.ExitStatus: 10 * time.Minute,
	verdict.Start: 15 * time.Minute, verdict.CPU: 10 * time.Minute,
	verdict.Leaks: time.Hour,
}

// Others returns who else uses the host, and what the test would take of it. busy is false where nobody does.
func Others(ctx context.Context, c Config) (text string, busy bool, err error) {
	h, err := c.Client.Host(ctx)
	if err != nil {
		return "", false, err
	}
	claims, err := c.Client.Claims(ctx)
	if err != nil {
		return "", false, err
	}
	text = fmt.Sprintf("%d VMs run here, %d jobs wait, %d jobs run outside of VMs; the test takes what is free, ",
		h.VMs, h.Waiting, len(claims)) + fmt.Sprintf("up to all of CPUs %s, for minutes", h.Free)
	return text, h.VMs+h.Waiting+len(claims) > 0, nil
}

// Run makes the checks. It returns an error where they cannot be made at all, or ctx ended; its VMs are gone then.
func Run(ctx context.Context, c Config) (report.Report, error) {
	t := &tester{Config: c, machines: map[string]verdict.Machine{}, own: map[string]bool{}}
	r := report.Report{Schema: report.Schema, Version: c.Version, Date: time.Now().UTC().Truncate(time.Second)}
	if c.Site {
		r.Site = &report.Site{Name: c.Facts.Name}
	}
	if err := t.look(ctx, &r); err != nil {
		return r, err
	}
	all := verdict.Checks
	if len(c.Only) > 0 {
		unwanted := func(k verdict.Check) bool { return !slices.Contains(c.Only, k.Name) }
		all = slices.DeleteFunc(slices.Clone(all), unwanted)
	}
	for i, k := range all {
		t.say("[%d/%d] %s: %s", i+1, len(all), k.Name, k.Title)
		began := time.Now()
		f := t.check(ctx, k.Name)
		if ctx.Err() != nil {
			return r, t.leave(ctx)
		}
		r.Add(k, f, time.Since(began))
		for _, d := range f.Details { // here, on the host itself, they are no secret
			t.say("      %s", farm.Printable(d))
		}
	}
	return r, nil
}

// look reads what the host has, and what of it VMs of the caller may get.
func (t *tester) look(ctx context.Context, r *report.Report) error {
	h, err := t.Client.Host(ctx)
	if err != nil {
		return err
	}
	g, err := t.Client.Grant(ctx)
	if err != nil {
		return err
	}
	if t.image = t.Image; t.image == "" {
		t.image = g.Image
	}
	topology, f := t.Facts.Topology, t.Facts
	r.Host = report.Host{Processor: topology.CPU.Name, Sockets: len(topology.Sockets), Nodes: len(topology.Nodes),
		Cores: len(topology.Cores), CPUs: topology.Online.Len(), Memory: uint64(f.Memory.Total), OS: f.OS.Name,
		Kernel: f.Kernel.Release, QEMU: f.Versions.QEMU, Libvirt: f.Versions.Libvirt, Accelerator: h.Accelerator,
		VirtualMachine: f.Virtual}
	if !t.Site {
		r.Host.Kernel = release.FindString(f.Kernel.Release) // behind its numbers may be the site's name
	}
	_, err = t.roomNow(ctx)
	return err
}

var release = lazyregexp.New(`^[0-9]+(\.[0-9]+)*(-[0-9]+)*`)

// roomNow reads what is free.
func (t *tester) roomNow(ctx context.Context) (verdict.Room, error) {
	h, err := t.Client.Host(ctx)
	if err != nil {
		return t.room, err
	}
	g, err := t.Client.Grant(ctx)
	if err != nil {
		return t.room, err
	}
	var room verdict.Room
	if room.Host, err = wire.HostTopology(h); err != nil {
		return t.room, err
	}
	for _, list := range []struct {
		into *farm.CPUSet
		text string
	}{{&room.Allowed, g.CPUs}, {&room.Free, h.Free}} {
		if *list.into, err = farm.ParseCPUSet(list.text); err != nil {
			return t.room, err
		}
	}
	reserved, err := farm.ParseCPUSet(h.Reserved)
	room.Allowed = room.Allowed.Minus(reserved)
	t.room = room
	return room, err
}

// check makes one check within its limit.
func (t *tester) check(ctx context.Context, name string) verdict.Finding {
	limit := limits[name]
	if limit == 0 {
		limit = time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	f := t.find(ctx, name)
	if ctx.Err() != nil {
		return verdict.NoTime(limit.String())
	}
	return f
}

func (t *tester) find(ctx context.Context, name string) verdict.Finding {
	switch name {
	case verdict.Libvirt:
		return verdict.JudgeLibvirt(t.daemon(ctx))
	case verdict.Cgroup:
		return verdict.JudgeCgroup(groups(os.DirFS("/sys/fs/cgroup")))
	case verdict.KVM:
		return verdict.JudgeKVM(t.smallest(ctx))
	case verdict.Confinement:
		return verdict.JudgeConfinement(t.smallest(ctx))
	case verdict.Memory:
		return verdict.JudgeMemory(t.smallest(ctx))
	case verdict.Shapes:
		return verdict.JudgeShapes(t.every(ctx))
	case verdict.Pins:
		return verdict.JudgePins(t.every(ctx))
	case verdict.Topology:
		return verdict.JudgeTopology(t.every(ctx))
	case verdict.Pages2M:
		return verdict.JudgePages(t.machine(ctx, verdict.PagesShape(t.room, 2*farm.MiB)))
	case verdict.Pages1G:
		return verdict.JudgePages(t.machine(ctx, verdict.PagesShape(t.room, farm.GiB)))
	case verdict.Streams:
		return verdict.JudgeStreams(t.streams(ctx))
	case verdict.ExitStatus:
		return verdict.JudgeExits(t.exits(ctx))
	case verdict.Start:
		return verdict.JudgeStart(t.starts(ctx))
	case verdict.CPU:
		return verdict.JudgeCPU(t.loads(ctx))
	}
	return verdict.JudgeLeaks(t.leaks(ctx))
}

func (t *tester) smallest(ctx context.Context) []verdict.Machine {
	return []verdict.Machine{t.machine(ctx, verdict.One(t.room))}
}

func (t *tester) every(ctx context.Context) []verdict.Machine {
	var all []verdict.Machine
	for _, s := range verdict.ShapesOf(t.room) {
		all = append(all, t.machine(ctx, s))
	}
	return all
}

// leave waits until the agent has ended our VMs: whoever ran them was told to give them back.
func (t *tester) leave(ctx context.Context) error {
	t.say("given up; waiting for the agent to end what ran")
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	for bounded.Err() == nil {
		vms, err := t.Client.VMs(bounded)
		if err == nil && !slices.ContainsFunc(vms, t.isOurs) {
			break
		}
		_ = sleep.For(bounded, 200*time.Millisecond)
	}
	return context.Cause(ctx)
}

func (t *tester) say(format string, args ...any) { fmt.Fprintf(t.Progress, format+"\n", args...) }

// daemon asks libvirt a few times.
func (t *tester) daemon(ctx context.Context) verdict.Daemon {
	var d verdict.Daemon
	for range 4 {
		took, err := t.Answer(ctx)
		if err != nil {
			d.Away, d.Details = true, append(d.Details, err.Error())
			break
		}
		d.Answers = append(d.Answers, took)
	}
	h, err := t.Client.Host(ctx)
	if err != nil {
		d.Details = append(d.Details, err.Error())
		return d
	}
	d.Stuck = len(h.Hypervisor.Stuck)
	if h.Hypervisor.Slow != "" {
		d.Details = append(d.Details, h.Hypervisor.Slow)
	}
	return d
}
