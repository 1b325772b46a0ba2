package agent

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/cloud"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/network"
)

// recover takes over what runs on the host, and cloud VMs that do not. Until the hypervisor has answered nothing
// is known, so nothing is removed and no job is taken.
func (a recovery) recover(ctx context.Context) error {
	var found []hyper.Found
	err := a.persist(func() (err error) {
		found, err = a.hyper.List(ctx)
		return err
	})
	if err != nil {
		return err
	}
	a.Cloud.Load(a.ctx)
	known := map[string]bool{}
	slices.SortFunc(found, func(x, y hyper.Found) int { return attemptOf(y) - attemptOf(x) })
	for _, f := range found {
		if name, ok := a.takeOver(ctx, f); ok {
			known[name] = true
		}
	}
	a.restoreNetworks() // before what has ended is released: an older agent may not have said who needs what
	if err := a.hyper.Sweep(ctx); err != nil {
		a.log.Warn("sweep after start", "error", err)
	}
	a.removeStrays(known)
	a.Usage.Settle()
	a.log.Info("took over the host", "vms", len(known))
	return nil
}

// attemptOf orders the VMs of one job: an earlier one was being given up when the agent died.
func attemptOf(f hyper.Found) int {
	r, err := decodeRecord(f.Metadata)
	if err != nil {
		return 0
	}
	return r.Attempt
}

// takeOver goes on with one VM of an earlier agent. A VM that never ran an instruction has no job to lose, and goes.
func (a recovery) takeOver(ctx context.Context, f hyper.Found) (name string, ok bool) {
	r, err := decodeRecord(f.Metadata)
	if err != nil {
		a.log.Error("a vm of ours carries no record that we can read; it is left alone", "vm", f.Name, "error", err)
		return f.Name, true
	}
	if r.Cloud != nil {
		return r.Name, a.Cloud.TakeOver(ctx, f, r.carried())
	}
	m := a.machines.New(r.VM, r.Name)
	err = m.ReadApplied()
	if other := a.vmMadeFor(r.Job); err != nil || other != nil {
		a.log.Info("vm goes: it never ran, or its job has a later one", "vm", r.Name)
		if other == nil {
			a.Usage.Forget(r.Job)
		}
		if err := a.hyper.Stop(ctx, r.VM); err != nil {
			a.log.Error("vm does not end", "vm", r.Name, "error", err)
			return r.Name, true
		}
		return "", false
	}
	if err := m.ReadShares(); err != nil {
		a.log.Error("what serves a vm's directories is not known", "vm", r.Name, "error", err)
	}
	m.Made = true
	m.Checked.Store(true)
	m.Applied.PID, m.Applied.Started = f.PID, f.Started
	a.takeOverJobs(r, m, f.State)
	return r.Name, true
}

// takeOverJobs goes on with a VM and the jobs in it.
func (a recovery) takeOverJobs(r record, m *machine.Machine, state hyper.State) {
	tasks, err := tasksOf(m)
	if err != nil {
		a.log.Error("tasks of a vm cannot be read; they end", "vm", r.Name, "error", err)
	}
	if len(tasks) == 0 && (r.Allocation == nil || r.Caller.alive()) {
		tasks = []taskRecord{{Job: r.Job, User: r.User, Command: r.Command, Caller: r.Caller, Keep: r.Keep,
			Judged: r.Judged, OneFS: r.OneFS, Gateways: r.Gateways, Uses: r.Uses}}
	}
	first := newJob(a.Agent, r.Job, r.Caller)
	first.record = r
	v := newVM(first)
	v.machine, v.defined, v.up = m, true, true
	v.power.TakeOver(m, state)
	v.follow(m)
	a.Usage.GoOn(v.id, v.usage(), r.Created, m.Applied.PID, m.Applied.Started)
	a.ledger.SetBatchJob(v.id, v.key)
	a.ledger.SetCharge(v.id, v.charge(a.machines.ImageOf(r.Digest)))
	a.ledger.Adopt(v.id, a.machines.Holder(r.Name, r.User, r.Command), r.Plan)
	var jobs []*job
	for _, t := range tasks {
		j := newJob(a.Agent, t.Job, t.Caller)
		j.record, j.takenOver = r, true
		j.record.Job, j.record.User, j.record.Command, j.record.Caller, j.record.Keep =
			t.Job, t.User, t.Command, t.Caller, t.Keep
		j.record.Judged, j.record.OneFS, j.record.Gateways, j.record.Uses = t.Judged, t.OneFS, t.Gateways, t.Uses
		if t.Port < len(v.ports) {
			v.ports[t.Port], j.port = j, t.Port
		}
		m.Control.Know(j.id)
		v.enter(j)
		if r.Worker != nil {
			j.request = workerJobRequest(r)
		}
		j.events = []api.JobEvent{{Event: api.EventVM, VM: v.view(j)}} // told again, before anything else
		jobs = append(jobs, j)
	}
	if len(jobs) > 0 {
		v.home = jobs[0] // which one it was is not known; leaving moves QEMU once more than it has to, at worst
	}
	a.mu.Lock()
	a.vms[v.id] = v
	for _, j := range jobs {
		a.live[j.id] = j
	}
	a.mu.Unlock()
	m.Watch()
	a.jobs.Go(v.followHeartbeats)
	a.jobs.Go(v.end)
	for _, j := range jobs {
		a.jobs.Go(j.run)
		if r.Worker != nil {
			a.jobs.Go(j.followWorker) // it belongs to no caller
		} else {
			a.jobs.Go(j.watchCaller)
		}
	}
}

// watchCaller ends a taken-over job whose caller died while no agent was there, or dies before it comes again. A caller
// that lives is waited for: it may be stopped, or slow. A batch job is watched from its beginning: its connection may
// have been handed to a process that the batch system does not know, and the VM would go on with CPUs that are another
// job's by then.
func (j *job) watchCaller() {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if !j.caller.alive() && !j.keeps() {
			j.cancel(errCallerGone)
			return
		}
		select {
		case <-tick.C:
		case <-j.over:
			return
		case <-j.ctx.Done():
			return
		}
	}
}

// logAge is how long libvirt's log of a VM that has ended stays, for whoever wants to know why.
const logAge = time.Hour

// removeOldLogs removes libvirt's logs of VMs that ended a while ago. libvirt keeps one for each name it ever saw, and
// a host makes a new name for every job.
func (a recovery) removeOldLogs(now time.Time) {
	live := map[string]bool{}
	for _, v := range a.all() {
		live[v.recordNow().Name+".log"] = true
	}
	for _, v := range a.Cloud.All() {
		live[v.Name+".log"] = true
	}
	logs, _ := filepath.Glob(filepath.Join(a.config().LibvirtLogs, machine.NamePrefix+"*.log"))
	for _, path := range logs {
		info, err := os.Stat(path)
		if err != nil || live[filepath.Base(path)] || now.Sub(info.ModTime()) < logAge {
			continue
		}
		if err := os.Remove(path); err != nil {
			a.log.Warn("an old log of libvirt stays", "path", path, "error", err)
		}
	}
}

// removeStrays removes files of VMs that do not run.
func (a recovery) removeStrays(known map[string]bool) {
	c := a.config()
	dirs := []string{filepath.Join(c.RunDir, "vm"), c.Areas.Jobs.Path, c.Areas.Cloud.Path}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			a.log.Error("list vms", "error", err)
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), machine.NamePrefix) ||
				known[e.Name()] || cloud.Keeps(filepath.Join(dir, e.Name())) {
				continue
			}
			if err := network.Release(a.ctx, e.Name()); err != nil {
				a.log.Error("the network of a vm is not released", "vm", e.Name(), "error", err)
				continue // by its directory the next agent finds it
			}
			if err := machine.EndShares(filepath.Join(dir, e.Name())); err != nil {
				a.log.Error("what served a vm's directories goes on", "vm", e.Name(), "error", err)
				continue
			}
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				a.log.Error("files of a vm stay", "vm", e.Name(), "error", err)
			}
		}
	}
}

// persist asks the hypervisor until it answers, or the agent ends. What it refuses for good is returned.
func (a recovery) persist(ask func() error) error {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := ask()
		if err == nil || !farm.IsCode(err, hyper.CodeAway) && !farm.IsKind(err, farm.Unavailable) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-a.ctx.Done():
			return context.Cause(a.ctx)
		}
	}
}
