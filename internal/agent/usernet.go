package agent

import (
	"context"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/usernet"
)

// fence keeps a machine with the network user from the host's own addresses, before its first instruction. The fake has
// no process, and no network. Errors: farm.CodeNoUserNetwork.
func (a *Agent) fence(ctx context.Context, pid int, n farm.Network) error {
	if n != farm.NetworkUser || pid == 0 {
		return nil
	}
	return usernet.Fence(ctx, pid, a.config().VMUIDs, a.config().UserNetwork.Allow)
}

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
		if err := a.fence(a.ctx, pid, farm.NetworkUser); err != nil && a.ctx.Err() == nil {
			a.log.Error("a vm with the network user can reach this host", "vm", name, "error", err)
		}
	}
}

// userNetworks are the processes of machines with the network user, and their names.
func (a *Agent) userNetworks() map[int]string {
	all := map[int]string{}
	add := func(m *machine, n farm.Network) {
		if m != nil && n == farm.NetworkUser && m.applied.PID != 0 {
			all[m.applied.PID] = m.name
		}
	}
	for _, v := range a.all() {
		v.mu.Lock()
		add(v.machine, v.record.Shape.Network)
		v.mu.Unlock()
	}
	for _, v := range a.allFleet() {
		v.mu.Lock()
		add(v.machine, v.record.Shape.Network)
		v.mu.Unlock()
	}
	return all
}
