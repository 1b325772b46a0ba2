package agent

import (
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/usernet"
)

// fenceAgain has the rules for all machines that run: of an earlier agent, or of a host whose rules somebody has
// flushed. One of the machines in each place is enough.
func (a *Agent) fenceAgain() {
	fenced, vms := map[usernet.Place]bool{}, a.config().VMUIDs
	for pid, name := range a.userNetworks() {
		place, err := usernet.PlaceOf(pid)
		if vms.Has(place.UID) {
			place.UID = vms.First // fenced with all others of the range
		}
		if err != nil || fenced[place] { // it ends just now
			continue
		}
		fenced[place] = true
		if err := a.machines.Fence(a.ctx, pid, farm.NetworkUser); err != nil && a.ctx.Err() == nil {
			a.log.Error("a vm with the network user can reach this host", "vm", name, "error", err)
		}
	}
}

// userNetworks are the processes of machines with the network user, and their names.
func (a *Agent) userNetworks() map[int]string {
	all := map[int]string{}
	add := func(m *machine.Machine, n farm.Network) {
		if m != nil && n == farm.NetworkUser && m.Applied.PID != 0 {
			all[m.Applied.PID] = m.Name
		}
	}
	for _, v := range a.all() {
		v.mu.Lock()
		add(v.machine, v.record.Shape.Network)
		v.mu.Unlock()
	}
	for _, v := range a.Cloud.All() {
		add(v.Current(), v.Network())
	}
	return all
}
