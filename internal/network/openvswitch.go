package network

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// access is an access port of a bridge of Open vSwitch.
type access struct {
	bridge string // "": it is none
	tag    int
}

// farName is the end of a cable that is plugged into Open vSwitch.
func farName(bridge string) string { return bridge + "o" }

// switchPort is the port of a VLAN of a bridge of Open vSwitch: a cable, which is a pair of veth, to an access port
// there. VMs are plugged into a bridge of ours all the same, for no filter of nftables sees what Open vSwitch forwards.
func switchPort(n farm.Network, bridge string) (port, error) {
	below, err := net.InterfaceByName(bridge)
	if err != nil {
		return port{}, notCarried(n, fmt.Sprintf("it has no bridge %s of Open vSwitch, which [network.trunks] names", bridge),
			"make it, or correct [network.trunks] of its agent.toml")
	}
	return port{add: []string{"type", "veth", "peer", "name", farName(n.Bridge()), "group", groupText},
		lacks: "veth, the module veth", mtu: toldMTU(below.MTU), ovs: access{bridge, n.ID()}}, nil
}

// plug plugs the far end of a network's cable in.
func (a access) plug(ctx context.Context, n farm.Network, mtu int) error {
	far, tag := farName(n.Bridge()), "tag="+strconv.Itoa(a.tag)
	if err := noHost(far); err != nil {
		return err
	}
	if err := set(ctx, mtu, far, "up"); err != nil {
		return err
	}
	_, err := vsctl(ctx, "--may-exist", "add-port", a.bridge, far, "--", "set", "port", far, tag, "vlan_mode=access",
		"other_config:transient=true", owned)
	if program.Said(err, "no bridge named") {
		return notCarried(n, fmt.Sprintf("%s, which [network.trunks] names, is no bridge of Open vSwitch", a.bridge),
			"see `ovs-vsctl list-br`, and correct [network.trunks] of its agent.toml")
	}
	return err
}

// unplug takes the far end of a network's cable out, where there is one among the links of the host.
func unplug(ctx context.Context, bridge string, all []link) error {
	far := farName(bridge)
	if !slices.ContainsFunc(all, func(l link) bool { return l.Name == far && l.Group == groupText }) {
		return nil
	}
	_, err := vsctl(ctx, "--if-exists", "del-port", far)
	return err
}

// owned marks what is ours in Open vSwitch, whose configuration outlives the host's links.
const owned = "external_ids:owner=grange"

// forget removes ports whose cable has gone: with a host that broke down, or while Open vSwitch did not answer.
func forget(ctx context.Context) error {
	all, err := linksOf(ctx)
	if err != nil {
		return err
	}
	ports, err := vsctl(ctx, "--bare", "--columns=name", "find", "port", owned)
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(ports)) {
		if slices.ContainsFunc(all, func(l link) bool { return l.Name == name }) {
			continue
		}
		if _, err := vsctl(ctx, "--if-exists", "del-port", name); err != nil {
			return err
		}
	}
	return nil
}

// vsctl reads or changes the configuration of Open vSwitch. A change holds when it returns.
func vsctl(ctx context.Context, args ...string) ([]byte, error) {
	args = append([]string{"--timeout=" + strconv.Itoa(int(toolLimit.Seconds()/2))}, args...)
	out, err := program.Start(ctx, program.Call{Path: "ovs-vsctl", Args: args, Limit: toolLimit})
	if err == nil {
		return out, nil
	}
	return nil, notMade(err, "Open vSwitch has not plugged in, or out, what a network needs",
		"see `ovs-vsctl show`, and whether ovsdb-server and ovs-vswitchd run",
		"install Open vSwitch on the host (Debian: openvswitch-switch)")
}
