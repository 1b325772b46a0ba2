package agent

import (
	"github.com/grange-project/grange/internal/agent/binds"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/hyper"
)

// bindCaller is a job's caller as whose directories they are.
func (j *job) bindCaller(vm record) binds.Caller {
	c := j.caller
	rights := machine.ShareFor{UID: c.UID, GID: c.GID, Groups: c.Groups, Cgroups: c.Batch.Cgroups,
		CPUs: vm.Plan.Emulator}
	return binds.Caller{PID: c.PID, Gateways: j.record.Gateways, StateDir: j.agent.config().StateDir, For: rights,
		Alive: c.alive, Gone: errCallerGone}
}

// serveBinds has the directories of the VM's first job served that have a server of their own.
func (v *making) serveBinds(m *machine.Machine, spec *hyper.Machine) error {
	jobs := v.inside()
	if len(jobs) == 0 {
		return errCallerGone
	}
	first := jobs[0] // the task that the VM was made for may have left by now
	first.mu.Lock()
	request := first.request
	first.mu.Unlock()
	bound, err := binds.Serve(v.ctx, m, spec, request.Binds, first.bindCaller(v.record))
	v.update(func() { v.record.Binds = bound })
	return err
}

// bindLost ends a VM that has lost one of its directories, and its jobs with the reason.
func (v *vm) bindLost(m *machine.Machine, err error) {
	if v.current() != m {
		return // it is being given up
	}
	v.log().Error("a directory of a vm is lost", "error", err)
	v.cancel(err)
}

// moveTo puts the VM's processes into other control groups of its batch system.
func (v *vm) moveTo(groups []string) error {
	if err := adopt(groups, v.machine.Applied); err != nil {
		return err
	}
	return v.machine.AdoptShares(groups)
}
