package leases

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/journal"
)

// All shows the networks, with how many leases they have.
func (d *Desk) All() []api.Network {
	out := []api.Network{}
	networks := d.Networks()
	for _, name := range slices.Sorted(maps.Keys(networks)) {
		n := d.view(networks[name], func(uint32) bool { return false })
		n.Leases = nil
		out = append(out, n)
	}
	return out
}

// Show shows one with its leases. Whose VM has one is known to those who may see what the owner has. Errors:
// CodeNoSiteNetwork.
func (d *Desk) Show(name string, see func(owner uint32) bool) (api.Network, error) {
	n, err := d.network(name)
	if err != nil {
		return api.Network{}, err
	}
	return d.view(n, see), nil
}

// view shows a network with all its leases. One that is not in the list any more stays as long as its VM.
func (d *Desk) view(n config.SiteNetwork, see func(owner uint32) bool) api.Network {
	d.mu.Lock()
	all, err := d.of(n)
	d.mu.Unlock()
	out := api.Network{Name: n.Name, Network: string(n.On), Domain: n.Domain, Isolate: n.Isolate, Closed: n.Closed,
		Gateways: texts(n.Gateways), DNS: texts(n.DNS), Leases: []api.Lease{}}
	if err != nil {
		out.Warnings = append(out.Warnings, err.Error())
	}
	at := map[string]int{}
	for i, l := range all {
		at[l.MAC] = i
		out.Leases = append(out.Leases, api.Lease{Name: l.Name, MAC: l.MAC, Addresses: texts(l.Addresses)})
	}
	for _, h := range d.Holders() {
		l := h.Lease
		if l.Network != n.Name {
			continue
		}
		i, ok := at[l.MAC]
		if !ok || !all[i].Same(l.Lease) {
			i = len(out.Leases)
			out.Leases = append(out.Leases, api.Lease{Name: l.Name, MAC: l.MAC, Addresses: texts(l.Addresses),
				Removed: true})
			out.Warnings = append(out.Warnings, fmt.Sprintf("lease %s is not in the list any more, and taken until its "+
				"VM ends", l.Name))
		}
		out.Taken++
		if out.Leases[i].Taken = true; see(h.Owner) {
			out.Leases[i].VM = h.VM
		}
	}
	out.Total = len(out.Leases)
	slices.Sort(out.Warnings)
	return out
}

// View is a lease as it is shown with its VM.
func (l Lease) View() *api.Lease {
	return &api.Lease{Network: l.Network, Name: l.Name, MAC: l.MAC, Addresses: texts(l.Addresses), Taken: true}
}

func texts[T fmt.Stringer](all []T) (out []string) {
	for _, v := range all {
		out = append(out, v.String())
	}
	return out
}

// Warn logs what is wrong with lists, once. One goroutine at a time calls it.
func (d *Desk) Warn() {
	for name, n := range d.Networks() {
		if n.List == "" {
			continue
		}
		var errs []error
		for _, w := range d.view(n, func(uint32) bool { return false }).Warnings {
			errs = append(errs, errors.New(w))
		}
		if d.faults == nil {
			d.faults = map[string]*journal.Repeated{}
		}
		if d.faults[name] == nil {
			d.faults[name] = new(journal.Repeated)
		}
		d.faults[name].Log(d.Log, "leases of network "+name, errors.Join(errs...))
	}
}
