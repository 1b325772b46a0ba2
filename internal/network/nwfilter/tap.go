package nwfilter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// tap is the host's end of a VM's cable.
type tap struct {
	name  string
	index int
}

// hostsByte is what libvirt puts in the place of the first byte of a card's MAC, for the address of its tap.
const hostsByte = 0xfe

// tapOf finds the tap of a VM's process by what root alone can write: the kernel says which taps a process holds, and
// the tap's own address, which libvirt sets, says of which card it is. A QEMU that somebody broke into can make its
// process hold a tap of the same name in a network of its own, but not give another VM's tap its address.
func tapOf(pid int, mac net.HardwareAddr) (tap, error) {
	names, err := TapsHeld(pid)
	if err != nil {
		return tap{}, err
	}
	want := net.HardwareAddr(slices.Concat([]byte{hostsByte}, mac[1:]))
	for _, name := range names {
		i, err := net.InterfaceByName(name)
		if err == nil && slices.Equal(i.HardwareAddr, want) {
			return tap{i.Name, i.Index}, nil
		}
	}
	return tap{}, fmt.Errorf("process %d holds no tap with the address %v here, but %q", pid, want, names)
}

// TapOf returns the name of a VM's tap.
func TapOf(pid int, mac net.HardwareAddr) (string, error) {
	if len(mac) != 6 {
		return "", fmt.Errorf("invalid MAC address %q of a VM", mac)
	}
	t, err := tapOf(pid, mac)
	return t.name, err
}

// TapsHeld are the names of the taps that a process holds open.
func TapsHeld(pid int) (names []string, err error) {
	dir := fmt.Sprintf("/proc/%d/fdinfo", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil { // closed meanwhile
			continue
		}
		for line := range strings.Lines(string(text)) { // see tun_chr_show_fdinfo of the kernel's drivers/net/tun.c
			if name, ok := strings.CutPrefix(line, "iff:"); ok {
				names = append(names, strings.TrimSpace(name))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// setPort sets how a bridge treats this port of its: whether it forwards between it and other isolated ones, and that a
// guest takes no part in the spanning tree. A frame of that protocol shuts the guest's own port.
func setPort(index int, isolated bool) error {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	timeout := unix.Timeval{Sec: 5}
	if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return err
	}
	kernel := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if err := unix.Sendto(s, portMessage(index, isolated), 0, kernel); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(s, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return errors.New("the kernel's answer makes no sense")
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return fmt.Errorf("settings of a bridge's port: %w", unix.Errno(-code))
	}
	return nil
}

// portMessage is a struct nlmsghdr, a struct ifinfomsg, and the attributes of the port within IFLA_PROTINFO.
func portMessage(index int, isolated bool) []byte {
	b := make([]byte, unix.SizeofNlMsghdr+unix.SizeofIfInfomsg, 64)
	binary.NativeEndian.PutUint16(b[4:], unix.RTM_SETLINK)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	b[unix.SizeofNlMsghdr] = unix.AF_BRIDGE
	binary.NativeEndian.PutUint32(b[unix.SizeofNlMsghdr+4:], uint32(index))
	flag := func(attribute uint16, on bool) []byte {
		a := binary.NativeEndian.AppendUint16(nil, unix.SizeofRtAttr+1)
		a = binary.NativeEndian.AppendUint16(a, attribute)
		if on {
			return append(a, 1, 0, 0, 0)
		}
		return append(a, 0, 0, 0, 0)
	}
	inner := slices.Concat(flag(unix.IFLA_BRPORT_ISOLATED, isolated), flag(unix.IFLA_BRPORT_GUARD, true))
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(inner)))
	b = binary.NativeEndian.AppendUint16(b, unix.IFLA_PROTINFO|unix.NLA_F_NESTED)
	b = append(b, inner...)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	return b
}
