package network

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/network/nwfilter"
)

// bridge is a bridge that the host's administrator has made: VMs are plugged into it, and filtered there.
type bridge struct{ filtered }

func (bridge) Check(n farm.Network, _ Settings) error {
	there, err := Bridges()
	if err != nil {
		return err
	}
	if name := n.Bridge(); !slices.Contains(there, name) {
		return &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoBridge,
			Message: fmt.Sprintf("this host has no bridge %q", name),
			Hint:    "make it, or let the network say which hosts carry it"}
	}
	return nil
}

func (bridge) Prepare(_ context.Context, vm VM, _ Settings) (hyper.Card, error) {
	card := hyper.Card{Type: hyper.BridgeCard, Bridge: vm.Network.Bridge(), MAC: vm.MAC}
	if i, err := net.InterfaceByName(card.Bridge); err == nil { // or the hypervisor says that it is not there
		card.MTU = toldMTU(i.MTU)
	}
	return card, nil
}

// usualMTU is what guests take an Ethernet to have until they are told otherwise.
const usualMTU = 1500

// toldMTU is what a guest has to be told of a network's MTU.
func toldMTU(mtu int) int {
	if mtu == usualMTU {
		return 0
	}
	return mtu
}

// Bridges are the names of the Linux bridges in this process's network, in order, but not of those that grange makes.
// /sys would tell those of the network that it was mounted in.
func Bridges() ([]string, error) {
	return bridges(func(group uint32, _ string) bool { return group != nwfilter.Group })
}

// ours are the bridges that were made for networks of a kind.
func ours(kind string) ([]string, error) {
	return bridges(func(group uint32, name string) bool {
		return group == nwfilter.Group && strings.HasPrefix(name, "g"+kind)
	})
}

// bridges are the bridges that are wanted by their group and name.
func bridges(wanted func(group uint32, name string) bool) ([]string, error) {
	answer, err := syscall.NetlinkRIB(unix.RTM_GETLINK, unix.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	messages, err := syscall.ParseNetlinkMessage(answer)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range messages {
		attributes, err := syscall.ParseNetlinkRouteAttr(&messages[i])
		if messages[i].Header.Type != unix.RTM_NEWLINK || err != nil {
			continue
		}
		name, bridge, group := "", false, uint32(0)
		for _, a := range attributes {
			switch a.Attr.Type {
			case unix.IFLA_IFNAME:
				name = string(bytes.TrimRight(a.Value, "\x00"))
			case unix.IFLA_LINKINFO:
				bridge = linkKind(a.Value) == "bridge"
			case unix.IFLA_GROUP:
				group = binary.NativeEndian.Uint32(a.Value)
			}
		}
		if bridge && wanted(group, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// linkKind finds IFLA_INFO_KIND among the attributes of an IFLA_LINKINFO: each a length, a type, and a value, filled up
// to four bytes.
func linkKind(attributes []byte) string {
	const head = unix.SizeofRtAttr
	for len(attributes) >= head {
		size, kind := int(binary.NativeEndian.Uint16(attributes)), binary.NativeEndian.Uint16(attributes[2:])
		if size < head || size > len(attributes) {
			return ""
		}
		if kind == unix.IFLA_INFO_KIND {
			return string(bytes.TrimRight(attributes[head:size], "\x00"))
		}
		attributes = attributes[min((size+3)&^3, len(attributes)):]
	}
	return ""
}
