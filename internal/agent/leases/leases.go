// Package leases gives VMs of jobs and workers their leases on the networks of a site, which a host's agent.toml
// declares. What VMs have is in their records; here is no more than what was read and given last.
package leases

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/journal"
	"github.com/grange-project/grange/internal/lease"
	"github.com/grange-project/grange/internal/network"
	"github.com/grange-project/grange/internal/sleep"
	"github.com/grange-project/grange/internal/vmimage"
)

// Codes of errors of leases.
const (
	CodeNoAddress     farm.Code = "no-address"      // all of the network are taken
	CodeBadLeases     farm.Code = "bad-leases"      // a list of leases cannot be read
	CodeNoSiteNetwork farm.Code = "no-site-network" // a network that is not in the agent's configuration
)

// Lease is what a VM has of a network of the site, in its record. It is taken as long as that is there: leases survive
// what VMs survive, whatever becomes of the list that they are from, and are free when the VM is gone.
type Lease struct {
	Network string       // of [networks]
	On      farm.Network `json:"-"` // what that was on the host when the lease was given; the VM's shape has it
	lease.Lease
	Gateways []netip.Addr `json:",omitempty"`
	DNS      []netip.Addr `json:",omitempty"`
	Isolated bool
	Closed   bool
}

// Holder is a VM of this host, with what it has of names, MACs and addresses.
type Holder struct {
	VM    string
	Owner uint32 // UID
	Lease Lease  // of any network; Network is "" for what was not given here
}

// Desk gives leases.
type Desk struct {
	Networks func() map[string]config.SiteNetwork
	Holders  func() []Holder // all VMs of this host
	Log      *slog.Logger

	mu     sync.Mutex // held from looking for a lease until a record has it
	books  map[string]*lease.Book
	lists  map[string][]lease.Lease // by network and how it is declared: as they were read last
	faults map[string]*journal.Repeated
}

// maxList is far beyond a list of 65,536 leases.
const maxList = 16 << 20

// of returns all leases of a network. A list that is being edited, or is wrong, is the one that was read last: err says
// why.
func (d *Desk) of(n config.SiteNetwork) (all []lease.Lease, err error) {
	if n.List == "" {
		return lease.FromPools(n.Pools, n.HostNames, n.Domain), nil
	}
	// what was read for another file, or under other rules, is not in force
	key := fmt.Sprintf("%s %s %s %t %v", n.Name, n.List, n.Domain, n.Closed, n.Workers)
	text, err := readList(n.List)
	if err == nil {
		all, err = lease.Parse(text, n.Domain)
	}
	if err == nil {
		err = check(all, n)
	}
	if err != nil {
		return d.lists[key], &farm.Error{Kind: farm.Unavailable, Code: CodeBadLeases, Err: err,
			Message: fmt.Sprintf("the leases of network %s cannot be read: %s: %v", n.Name, n.List, err),
			Hint:    "correct the file; the agent reads it anew each time"}
	}
	if d.lists == nil {
		d.lists = map[string][]lease.Lease{}
	}
	d.lists[key] = all
	return all, nil
}

// check refuses leases that their network cannot have.
func check(all []lease.Lease, n config.SiteNetwork) error {
	for _, l := range all {
		if n.Closed && len(l.Addresses) == 0 {
			return fmt.Errorf("%s has no address: what is local in a closed network would not be known", l.Name)
		}
		for _, a := range l.Addresses {
			if n.Workers.Has(a.Addr()) {
				return fmt.Errorf("%s has the address %v of [worker] addresses, %v", l.Name, a.Addr(), n.Workers)
			}
			if slices.Contains(n.Gateways, a.Addr()) || slices.Contains(n.DNS, a.Addr()) {
				return fmt.Errorf("%s has the address %v of a gateway or name server", l.Name, a.Addr())
			}
		}
	}
	return nil
}

func readList(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxList+1))
	if err == nil && len(text) > maxList {
		err = errors.New("longer than 16 MiB")
	}
	return text, err
}

// Give finds a free lease, of this node if it has one, and has keep put it into a record before another one is looked
// for. Errors: CodeNoAddress, CodeBadLeases, CodeNoSiteNetwork.
func (d *Desk) Give(network, node string, keep func(Lease) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.network(network)
	if err != nil {
		return err
	}
	all, err := d.of(n)
	if err != nil && all == nil {
		return err
	}
	if node != "" { // a batch system has to know where it is
		all = slices.DeleteFunc(slices.Clone(all), func(l lease.Lease) bool { return len(l.Addresses) == 0 })
	}
	if d.books == nil {
		d.books = map[string]*lease.Book{}
	}
	if d.books[network] == nil {
		d.books[network] = new(lease.Book)
	}
	var taken lease.Taken
	for _, h := range d.Holders() {
		taken.Add(h.Lease.Lease)
	}
	l, ok := d.books[network].Choose(all, node, &taken)
	if !ok {
		return &farm.Error{Kind: farm.NoCapacity, Code: CodeNoAddress,
			Message: fmt.Sprintf("all leases of network %s are taken (%d)", network, len(all)),
			Hint:    "see `grange network show " + network + "`; raise its addresses, or add leases to its list"}
	}
	return keep(Lease{Network: network, On: n.On, Lease: l, Gateways: n.Gateways, DNS: n.DNS, Isolated: n.Isolate,
		Closed: n.Closed})
}

func (d *Desk) network(name string) (config.SiteNetwork, error) {
	if n, ok := d.Networks()[name]; ok {
		return n, nil
	}
	return config.SiteNetwork{}, &farm.Error{Kind: farm.NotFound, Code: CodeNoSiteNetwork,
		Message: fmt.Sprintf("this host has no network %q", name),
		Hint:    "`grange network list --local` shows them; they are below [networks] in the agent's configuration"}
}

// pause is between two looks for a lease that has come back.
const pause = 500 * time.Millisecond

// Await gives a job's VM a lease, and waits for one: enough reports whether that was long enough, and waiting is sent
// what it waits for.
func (d *Desk) Await(ctx context.Context, network string, enough func() bool, waiting func(string),
	keep func(Lease) error) error {
	for {
		err := d.Give(network, "", keep)
		if err == nil || farm.IsCode(err, CodeNoSiteNetwork) || enough() {
			return err
		}
		waiting(err.Error())
		if err := sleep.For(ctx, pause); err != nil {
			return err
		}
	}
}

// CheckImage refuses an image that does not ask for the address that the lease does not have.
func (l Lease) CheckImage(image vmimage.Image) error {
	if len(l.Addresses) > 0 || image.Kind == vmimage.Disk {
		return nil
	}
	return &farm.Error{Kind: farm.Invalid, Code: vmimage.CodeImageKind,
		Message: fmt.Sprintf("network %s has addresses by DHCP, which image %q does not ask for: it needs a disk",
			l.Network, image.Name), Hint: "see KIND in `grange image list`"}
}

// Address is a lease as a guest takes it, for IPv4 and for IPv6; nil: it has none.
func (l Lease) Address() (v4, v6 *guest.Address) {
	of := func(p netip.Prefix) *guest.Address {
		if !p.IsValid() {
			return nil
		}
		a := &guest.Address{CIDR: p.String()}
		for _, g := range l.Gateways {
			if g.Is4() == p.Addr().Is4() {
				a.Gateway = g.String()
			}
		}
		return a
	}
	v4, v6 = of(l.IPv4()), of(l.IPv6())
	for _, server := range l.DNS {
		if v4 != nil {
			v4.DNS = append(v4.DNS, server.String())
		} else if v6 != nil {
			v6.DNS = append(v6.DNS, server.String())
		}
	}
	return v4, v6
}

// Hosts is the guest's /etc/hosts. It may go by another name as well.
func (l Lease) Hosts(other string) []byte {
	names := l.Names()
	if !slices.Contains(strings.Fields(names), other) {
		names += " " + other
	}
	text := []byte("127.0.0.1 localhost\n::1 localhost\n")
	for _, a := range l.Addresses {
		text = fmt.Appendf(text, "%v %s\n", a.Addr(), names)
	}
	return text
}

// OnNetwork fills in what a VM is on its network.
func (l Lease) OnNetwork(vm network.VM) network.VM {
	vm.Host, vm.MAC, vm.Addresses, vm.Gateways, vm.DNS = l.Name, l.MAC, l.Addresses, l.Gateways, l.DNS
	vm.Isolated, vm.Closed = l.Isolated, l.Closed
	return vm
}
