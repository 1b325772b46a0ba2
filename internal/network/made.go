package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/network/nwfilter"
	"github.com/grange-project/grange/internal/program"
)

// CodeNotMade: a link that a network needs could not be made, changed or removed.
const CodeNotMade farm.Code = "network-not-made"

// made is a network whose bridge is made with the first VM on it and removed with the last, over one link that leads
// out, its port. The kernel has all that must be known of it: links of ours are in a group, and a VM that was prepared
// has a mark in the bridge's forwarding database from before its tap is there until it is released.
type made struct {
	filtered
	name string     // of the kind
	port portOf     // what differs
	mu   sync.Mutex // nothing is removed while a VM is prepared
}

// portOf says how the port of a network is made. It refuses, with farm.CodeNotCarried, what the host may not carry.
type portOf func(n farm.Network, s Settings) (port, error)

// port is a link that leads out of the host.
type port struct {
	add   []string // `ip link add NAME` goes on so
	lacks string   // where the kernel knows no such link: what it lacks
	card  string   // that it lies on; "": none
	mtu   int      // of the network, where it is not the usual one, and guests have to know; 0: as the kernel has it
	peers []string // addresses of hosts that get what is for nobody known
	ovs   access   // where the far end of a cable is plugged in
}

func portName(bridge string) string { return bridge + "p" }

func (m *made) Check(n farm.Network, s Settings) error {
	_, err := m.port(n, s)
	return err
}

func (m *made) Prepare(ctx context.Context, vm VM, s Settings) (hyper.Card, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.port(vm.Network, s)
	if err != nil {
		return hyper.Card{}, err
	}
	if err := m.make(ctx, vm.Network, p, []string{vm.Name}); err != nil {
		return hyper.Card{}, err
	}
	return hyper.Card{Type: hyper.BridgeCard, Bridge: vm.Network.Bridge(), MAC: vm.MAC, MTU: p.mtu}, nil
}

// make makes what is not there of a network, with marks for these machines. The bridge comes first, and its port last:
// whatever is left of an attempt that was cut short is found by the bridge.
func (m *made) make(ctx context.Context, n farm.Network, p port, machines []string) error {
	bridge := n.Bridge()
	if err := ensure(ctx, bridge, "type", "bridge", "forward_delay", "0", "mcast_snooping", "0"); err != nil {
		return err
	}
	if err := m.mark(ctx, bridge, machines); err != nil {
		return err
	}
	name := portName(bridge)
	if err := ensure(ctx, name, p.add...); err != nil {
		return p.refused(n, err)
	}
	if p.ovs.bridge != "" {
		if err := forget(ctx); err != nil {
			return err
		}
	}
	if err := m.reach(ctx, n, p); err != nil {
		return err
	}
	for _, words := range [][]string{{name, "master", bridge, "up"}, {bridge, "alias", "grange " + string(n), "up"}} {
		if err := set(ctx, p.mtu, words...); err != nil {
			return p.refused(n, err)
		}
	}
	return nil
}

// reach has a network's port lead to where it has to.
func (m *made) reach(ctx context.Context, n farm.Network, p port) error {
	if p.ovs.bridge != "" {
		return p.ovs.plug(ctx, n, p.mtu)
	}
	return m.forward(ctx, portName(n.Bridge()), p.peers)
}

// refused is the error for people of a port that the kernel does not make.
func (p port) refused(n farm.Network, err error) error {
	switch {
	case p.lacks != "" && program.Said(err, "Unknown device type", "Operation not supported"):
		return notCarried(n, "this host's kernel has no "+p.lacks, "load it, or install a kernel that has it")
	case p.card != "" && program.Said(err, "File exists"):
		return notCarried(n, fmt.Sprintf("%s has it already, as an interface that somebody else made", p.card),
			"remove that interface, or put it into a bridge and name the bridge")
	case p.card != "" && program.Said(err, "Network is down"):
		return notCarried(n, p.card+" is down", "bring it up on the host")
	}
	return err
}

// mark makes the marks of machines that a bridge does not have.
func (m *made) mark(ctx context.Context, bridge string, machines []string) error {
	entries, err := forwardsOf(ctx, "br", bridge)
	if err != nil {
		return err
	}
	there := marks(link{Name: bridge}, entries)
	for _, name := range machines {
		if slices.Contains(there, mark(name)) {
			continue
		}
		if _, err := run(ctx, "bridge", "fdb", "replace", mark(name), "dev", bridge, "self", "permanent"); err != nil {
			return err
		}
	}
	return nil
}

// ensure makes a link of ours that is not there, without an address of the host. One of the name that is not ours is
// left alone.
func ensure(ctx context.Context, name string, add ...string) error {
	all, err := linksOf(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(l link) bool { return l.Name == name })
	if i >= 0 && all[i].Group != groupText {
		return &farm.Error{Kind: farm.Conflict, Code: CodeNotMade,
			Message: fmt.Sprintf("the host has an interface %s, which grange did not make", name),
			Hint:    "give it another name"}
	}
	if i < 0 {
		words := append([]string{"link", "add", "name", name, "group", groupText}, add...)
		if _, err := ip(ctx, words...); err != nil {
			return err
		}
	}
	return noHost(name)
}

// forward has a VXLAN device send to these hosts, and to no others, what is for all and what is for nobody known.
func (m *made) forward(ctx context.Context, name string, peers []string) error {
	if len(peers) == 0 {
		return nil
	}
	const all = "00:00:00:00:00:00"
	entries, err := forwardsOf(ctx, "dev", name)
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(f forward) bool { return f.MAC != all })
	for _, peer := range peers {
		if slices.ContainsFunc(entries, func(f forward) bool { return f.To == peer }) {
			continue
		}
		_, err := run(ctx, "bridge", "fdb", "append", all, "dev", name, "dst", peer, "self", "permanent")
		if err != nil {
			return err
		}
	}
	for _, f := range entries {
		if slices.Contains(peers, f.To) {
			continue
		}
		if _, err := run(ctx, "bridge", "fdb", "del", all, "dev", name, "dst", f.To, "self"); err != nil {
			return err
		}
	}
	return nil
}

// Restore makes what somebody has removed, and plugs VMs in again.
func (m *made) Restore(ctx context.Context, vms []VM, s Settings, failed func(VM, error)) {
	defer m.filtered.Restore(ctx, vms, s, failed)
	m.mu.Lock()
	defer m.mu.Unlock()
	networks := map[farm.Network][]VM{}
	for _, vm := range vms {
		if alive(vm.PID) {
			networks[vm.Network] = append(networks[vm.Network], vm)
		}
	}
	var all []link
	if len(networks) > 0 {
		all, _ = linksOf(ctx) // as if nothing were there: making it says what is wrong
	}
	for n, vms := range networks {
		if err := m.restore(ctx, n, vms, s, all); err != nil {
			failed(vms[0], err)
		}
	}
}

// intact reports whether a network has its bridge, its port, and a link for each VM, among the links of a host. Then
// there is nothing to do but to look at its peers, which comes often, and for many networks.
func intact(bridge string, vms int, all []link) bool {
	up, plugged := 0, 0
	for _, l := range all {
		isUp := l.Group == groupText && slices.Contains(l.Flags, "UP")
		switch {
		case l.Name == bridge && isUp, l.Name == portName(bridge) && l.Master == bridge && isUp:
			up++
		case l.Master == bridge && l.Group != groupText:
			plugged++
		}
	}
	return up == 2 && plugged >= vms
}

func (m *made) restore(ctx context.Context, n farm.Network, vms []VM, s Settings, all []link) error {
	p, err := m.port(n, s)
	if err != nil {
		return err
	}
	if intact(n.Bridge(), len(vms), all) {
		return errors.Join(noHost(n.Bridge()), noHost(portName(n.Bridge())), m.reach(ctx, n, p))
	}
	var names []string
	for _, vm := range vms {
		names = append(names, vm.Name)
	}
	if err := m.make(ctx, n, p, names); err != nil {
		return err
	}
	ports, err := linksOf(ctx, "master", n.Bridge())
	if err != nil {
		return err
	}
	var errs []error
	for _, vm := range vms {
		tap, err := nwfilter.TapOf(vm.PID, vm.mac())
		if err == nil && !slices.ContainsFunc(ports, func(l link) bool { return l.Name == tap }) {
			_, err = ip(ctx, "link", "set", "dev", tap, "master", n.Bridge())
		}
		if alive(vm.PID) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func alive(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	return err == nil
}

// Release removes the machine's mark, and the bridges of the kind that no machine has: also those that an agent which
// was killed has left.
func (m *made) Release(ctx context.Context, name string) error {
	return errors.Join(m.filtered.Release(ctx, name), m.leaveAll(ctx, name))
}

func (m *made) leaveAll(ctx context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	bridges, err := ours(m.name)
	if err != nil || len(bridges) == 0 {
		return err
	}
	for _, bridge := range bridges {
		if err := m.leave(ctx, bridge, mark(name)); err != nil {
			return err
		}
	}
	return nil
}

// leave removes a mark from a bridge, and the bridge with its port where no other mark is on it and nobody is plugged
// into it. The bridge goes last: as long as it is there, its port is found.
func (m *made) leave(ctx context.Context, name, mark string) error {
	all, err := linksOf(ctx)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(all, func(l link) bool { return l.Name == name })
	if at < 0 {
		return nil
	}
	entries, err := forwardsOf(ctx, "br", name)
	if err != nil {
		return err
	}
	left := marks(all[at], entries)
	if i := slices.Index(left, mark); i >= 0 {
		if _, err := run(ctx, "bridge", "fdb", "del", mark, "dev", name, "self"); err != nil {
			return err
		}
		left = slices.Delete(left, i, i+1)
	}
	plugged := func(l link) bool { return l.Master == name && l.Group != groupText }
	if len(left) > 0 || slices.ContainsFunc(all, plugged) {
		return nil
	}
	unplugged := unplug(ctx, name, all)
	for _, l := range all {
		if l.Name != portName(name) || l.Group != groupText {
			continue
		}
		if _, err := ip(ctx, "link", "del", "dev", l.Name); err != nil {
			return err
		}
	}
	_, err = ip(ctx, "link", "del", "dev", name)
	return errors.Join(unplugged, err)
}

// interfaceByAddress is the host's interface that has an address.
func interfaceByAddress(address string) (*net.Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, i := range all {
		addresses, err := i.Addrs()
		if err != nil {
			return nil, err
		}
		for _, a := range addresses {
			if n, ok := a.(*net.IPNet); ok && n.IP.String() == address {
				return &i, nil
			}
		}
	}
	return nil, nil
}

// notCarried is the error of a host that may not, or cannot, carry a network.
func notCarried(n farm.Network, why, hint string) error {
	return &farm.Error{Kind: farm.NotFound, Code: farm.CodeNotCarried,
		Message: fmt.Sprintf("this host does not carry network %s: %s", n, why), Hint: hint}
}
