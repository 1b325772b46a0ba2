package agent

import "github.com/grange-project/grange/internal/agent/machine"

// A guest whose watchdog runs out is unresponsive, as one that does not answer: what is done about it is the same. It
// is responsive again when it answers, if it ever does, and when it reboots.

// watchdog deals with the watchdog of a machine, which ran out.
func (a *watch) watchdog(machine string) {
	m := a.machineOf(machine)
	if m == nil || !a.config().Heartbeat.Watchdog {
		return
	}
	if m.Pulse.Watchdog() {
		a.log.Info("watchdog of a vm ran out because the vm was stopped", "vm", m.Name)
	}
}

// rebooted deals with a machine whose guest begins anew.
func (a *watch) rebooted(machine string) {
	if m := a.machineOf(machine); m != nil {
		m.Pulse.Rebooted()
	}
}

// machineOf returns the machine with an ID; nil: there is none.
func (a *watch) machineOf(id string) *machine.Machine {
	if v := a.Cloud.ByID(id); v != nil {
		return v.Current()
	}
	for _, v := range a.all() {
		if m := v.current(); m != nil && m.ID == id {
			return m
		}
	}
	return nil
}
