package server

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/grange-project/grange/internal/farm"
)

// leases gives VMs of one request names and addresses of one network.
type leases struct {
	*call
	network farm.FleetNetwork
	others  []farm.FleetNetwork // the farm's other networks: a MAC must be no other VM's wherever it is

	addresses, names taken
}

// taken is what is taken of one list. The database is asked for each; all that are taken are read only where many
// are, one behind the other.
type taken struct {
	list
	is    func(network, value string) (bool, error)
	all   func(network string) ([]string, error)
	every map[string]bool // all that are; nil: not read
}

func newLeases(c *call, network farm.FleetNetwork, others []farm.FleetNetwork) *leases {
	return &leases{call: c, network: network, others: others,
		addresses: taken{list: list{network.Name, "address"}, is: c.AddressLeased, all: c.LeasedAddresses},
		names:     taken{list: list{network.Name, "host name"}, is: c.NameLeased, all: c.LeasedNames}}
}

func (b *taken) has(value string) (bool, error) {
	if b.every != nil {
		return b.every[value], nil
	}
	return b.is(b.network, value)
}

func (b *taken) take(value string) {
	if b.every != nil {
		b.every[value] = true
	}
}

// read has it look no more into the database.
func (b *taken) read() error {
	if b.every != nil {
		return nil
	}
	all, err := b.all(b.network)
	b.every = make(map[string]bool, len(all))
	for _, value := range all {
		b.every[value] = true
	}
	return err
}

// cursors remember behind which address and which name of each network this server gave the last: the next search
// begins there, as DHCP servers do, for what is before it is mostly taken. It comes round before anything is refused.
type cursors struct {
	mu sync.Mutex
	at map[list]int
}

// list is the addresses of a network, or its names.
type list struct{ network, what string }

func (c *cursors) get(l list) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at[l]
}

func (c *cursors) set(l list, place int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil {
		c.at = map[list]int{}
	}
	c.at[l] = place
}

// probes is how many in a row are looked at before all that are taken are read.
const probes = 64

// search is the place of the next in a list that is not taken. value is what is at a place.
func (l *leases) search(b *taken, size int, value func(place int) string) (int, error) {
	from := l.s.cursors.get(b.list)
	for n := range size {
		if n == probes {
			if err := b.read(); err != nil {
				return 0, err
			}
		}
		place := (from + n) % size
		taken, err := b.has(value(place))
		if err != nil {
			return 0, err
		}
		if !taken {
			l.s.cursors.set(b.list, place+1)
			return place, nil
		}
	}
	return 0, &farm.Error{Kind: farm.NoCapacity, Code: CodeNoLease,
		Message: fmt.Sprintf("network %s has no %s left", l.network.Name, b.what),
		Hint:    "delete VMs that are not needed, or ask an administrator for more"}
}

// give is a lease for a VM. A valid address is asked for; whether another VM has it is the caller's to find out.
func (l *leases) give(vm farm.VM, asked netip.Addr) (farm.Lease, error) {
	lease := farm.Lease{Network: l.network.Name}
	var err error
	if lease.Hostname, err = l.name(vm); err != nil {
		return lease, err
	}
	if lease.Address, err = l.addressFor(asked); err != nil {
		return lease, err
	}
	lease.MAC = l.mac(vm.ID, lease.Address)
	l.addresses.take(lease.Address.Addr().String())
	l.names.take(lease.Hostname)
	return lease, nil
}

// addressFor is the address that was asked for, with the length of its pool's prefix, or the next that is free. A
// network without pools leases none: its VMs ask the network itself.
func (l *leases) addressFor(asked netip.Addr) (netip.Prefix, error) {
	pools, size := l.network.Addresses, 0
	if asked.IsValid() {
		i := slices.IndexFunc(pools, func(p farm.AddressPool) bool { return p.Has(asked) })
		if i < 0 {
			return netip.Prefix{}, &farm.Error{Kind: farm.Invalid, Code: CodeAddressTaken,
				Message: fmt.Sprintf("network %s leases no address %s", l.network.Name, asked),
				Hint:    "name an address of the network's pools, or none"}
		}
		return netip.PrefixFrom(asked, pools[i].Bits), nil
	}
	for _, p := range pools {
		size += p.Size()
	}
	if len(pools) == 0 {
		return netip.Prefix{}, nil
	}
	place, err := l.search(&l.addresses, size,
		func(place int) string { return addressAt(pools, place).Addr().String() })
	if err != nil {
		return netip.Prefix{}, err
	}
	return addressAt(pools, place), nil
}

// addressAt is an address by its place in all pools, which must be below their sizes' sum.
func addressAt(pools []farm.AddressPool, place int) netip.Prefix {
	for place >= pools[0].Size() {
		place -= pools[0].Size()
		pools = pools[1:]
	}
	return pools[0].At(place)
}

// name is the next free name of the network's list, or the VM's own. Two projects may have VMs of one name on one
// network: the second is called NAME-PROJECT there.
func (l *leases) name(vm farm.VM) (string, error) {
	if names := l.network.Names; len(names) > 0 {
		place, err := l.search(&l.names, len(names), func(place int) string { return l.full(names[place]) })
		return l.full(names[place]), err
	}
	for _, n := range []string{vm.Name, vm.Name + "-" + hostLabel(vm.Project)} {
		if checkName(n) != nil {
			continue
		}
		full := l.full(n)
		if taken, err := l.names.has(full); err != nil || !taken {
			return full, err
		}
	}
	return "", &farm.Error{Kind: farm.Conflict, Code: CodeAddressTaken,
		Message: fmt.Sprintf("another VM on network %s is called %s", l.network.Name, l.full(vm.Name)),
		Hint:    "take another name"}
}

// hostLabel is a project's name as a part of a host name.
func hostLabel(project string) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || r == '_' {
			return '-'
		}
		return r
	}, strings.ToLower(project))
}

func (l *leases) full(name string) string {
	if l.network.Domain == "" || strings.HasSuffix(name, "."+l.network.Domain) {
		return name
	}
	return name + "." + l.network.Domain
}

// mac is the one that belongs to the address, so that a VM which gets an address again is the same card to the network.
// Where there is no address, or another network leases the same, it is made of the VM's ID.
func (l *leases) mac(id string, address netip.Prefix) string {
	shared := func(n farm.FleetNetwork) bool {
		return slices.ContainsFunc(n.Addresses, func(p farm.AddressPool) bool { return p.Has(address.Addr()) })
	}
	if !address.IsValid() || slices.ContainsFunc(l.others, shared) {
		return macOfID(id)
	}
	return farm.MAC(address.Addr())
}

// macOfID is a locally administered address of one card. Those of farm.MAC begin with 52, so the two never meet.
func macOfID(id string) string {
	raw, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || len(raw) < 16 {
		return ""
	}
	return fmt.Sprintf("56:%02x:%02x:%02x:%02x:%02x", raw[0], raw[1], raw[2], raw[3], raw[4])
}
