package agent

import (
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/waittest"
)

// heartbeat sets the time that guests have, and what is done about those that do not answer.
func (f *farmhouse) heartbeat(timeout time.Duration, action config.HeartbeatAction) {
	c := f.agent.config()
	c.Heartbeat.Timeout, c.Heartbeat.Action = timeout, action
	f.agent.Reload(c)
}

func (g *fakeGuests) hang(silent bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.silent = silent
}

// shows waits until the caller's only VM is shown so.
func (f *farmhouse) shows(what string, want func(vm api.VM) bool) {
	f.Helper()
	var vms []api.VM
	for deadline := time.Now().Add(waittest.Limit); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if vms = f.vmsFor(admin); len(vms) == 1 && want(vms[0]) {
			return
		}
	}
	f.Fatalf("never shown: %s; %+v", what, vms)
}

func unresponsiveVM(vm api.VM) bool {
	return vm.Unresponsive != nil && vm.State == machine.StateUnresponsive
}

// TestUnresponsiveJob has the guest of a job hang: that is shown, and the job is told; with the action end, or restart,
// the job ends as lost.
func TestUnresponsiveJob(t *testing.T) {
	for _, action := range []config.HeartbeatAction{config.HeartbeatReport, config.HeartbeatRestart,
		config.HeartbeatEnd} {
		f := newFarmhouse(t)
		f.heartbeat(time.Second, action)
		x := f.mustAsk(f.caller(""), api.JobRequest{})
		x.until(api.EventRunning)
		f.shows("an answer", func(vm api.VM) bool { return vm.Heard != nil && vm.Unresponsive == nil })
		f.guests.hang(true)
		if action == config.HeartbeatReport {
			x.until(api.EventWarning)
			f.shows("unresponsive", unresponsiveVM)
			f.guests.hang(false)
			f.shows("an answer again", func(vm api.VM) bool { return vm.Unresponsive == nil && vm.State == "running" })
			x.done()
			continue
		}
		for e := range x.events {
			if e.Problem == nil {
				continue
			}
			if e.Event != api.EventLost || e.Problem.Type != "grange:"+string(farm.CodeGuestUnresponsive) {
				t.Errorf("%s: the job got %s: %+v", action, e.Event, e.Problem)
			}
			x.hangUp()
		}
		<-x.job.over
		if n := f.machines(); n != 0 {
			t.Errorf("%s: %d machines are left", action, n)
		}
		if f.guests.started() != 1 {
			t.Errorf("%s: %d jobs were started", action, f.guests.started())
		}
	}
}

func (g *fakeGuests) started() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, jobs := range g.jobs {
		n += len(jobs)
	}
	return n
}

// TestUnresponsiveCloudVM has the guest of a cloud VM hang.
func TestUnresponsiveCloudVM(t *testing.T) {
	for action, want := range map[config.HeartbeatAction]func(o fleet.Observed) bool{
		config.HeartbeatReport:  func(o fleet.Observed) bool { return o.State == string(farm.VMRunning) && o.Ready },
		config.HeartbeatRestart: func(o fleet.Observed) bool { return true }, // in whatever state it is just now
		config.HeartbeatEnd:     func(o fleet.Observed) bool { return o.State == string(farm.VMFailed) },
	} {
		f := newFarmhouse(t)
		f.heartbeat(time.Second, action)
		w := f.cloud()
		f.want(w)
		f.seesState(w, farm.VMRunning)
		f.guests.hang(true)
		f.sees(string(action), w, func(
			o fleet.Observed) bool {
			return reasonCode(o.Reason) == string(farm.CodeGuestUnresponsive) && want(o)
		})
		f.guests.hang(false)
		if action == config.HeartbeatEnd {
			if n := f.machines(); n != 0 {
				t.Errorf("%d machines run after the end", n)
			}
			continue
		}
		f.seesState(w, farm.VMRunning)
		starts := 1
		if action == config.HeartbeatRestart {
			starts = 2
		}
		f.sees("it runs again", w, func(o fleet.Observed) bool { return o.Ready && f.guests.started() >= starts })
		if n := f.guests.started(); n != starts {
			t.Errorf("%s: the VM was started %d times", action, n)
		}
	}
}

// TestNotUnresponsive stops guests in ways that are nobody's fault: none of them ends for it, although the action is to
// end them.
func TestNotUnresponsive(t *testing.T) {
	const timeout = time.Second
	for name, stop := range map[string]func(f *farmhouse, x *task){
		"suspended by order": func(f *farmhouse, x *task) {
			if err := x.job.vm.pause(f.Context(), true); err != nil {
				f.Error(err)
			}
		},
		"suspended by virsh": func(f *farmhouse, x *task) {
			if err := f.agent.hyper.Suspend(f.Context(), x.job.vm.current().ID); err != nil {
				f.Error(err)
			}
		},
		"hypervisor away": func(f *farmhouse, _ *task) { f.host.Kill() },
	} {
		f := newFarmhouse(t)
		f.heartbeat(timeout, config.HeartbeatEnd)
		x := f.mustAsk(f.caller(""), api.JobRequest{})
		x.until(api.EventRunning)
		f.shows("an answer", func(vm api.VM) bool { return vm.Heard != nil })
		stop(f, x)
		f.guests.hang(true) // as one that runs no instruction
		time.Sleep(3 * timeout)
		if vms := f.vmsFor(admin); len(vms) != 1 || vms[0].Unresponsive != nil {
			t.Errorf("%s: %+v", name, vms)
		}
		f.host.Restart()
	}
	f := newFarmhouse(t)
	f.guests.old, f.guests.silent = true, true
	f.heartbeat(timeout, config.HeartbeatEnd)
	f.mustAsk(f.caller(""), api.JobRequest{}).until(api.EventRunning)
	time.Sleep(3 * timeout)
	if vms := f.vmsFor(admin); len(vms) != 1 || vms[0].Unresponsive != nil || vms[0].Heard != nil {
		t.Errorf("a guest that knows no pings: %+v", vms)
	}
}
