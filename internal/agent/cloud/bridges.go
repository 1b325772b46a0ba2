package cloud

import (
	"bytes"
	"encoding/binary"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// bridges are the names of the Linux bridges in this process's network, in order. /sys would tell those of the network
// that it was mounted in.
func bridges() ([]string, error) {
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
		name, bridge := "", false
		for _, a := range attributes {
			switch a.Attr.Type {
			case unix.IFLA_IFNAME:
				name = string(bytes.TrimRight(a.Value, "\x00"))
			case unix.IFLA_LINKINFO:
				bridge = linkKind(a.Value) == "bridge"
			}
		}
		if bridge {
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
