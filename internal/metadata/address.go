package metadata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// addAddress gives a device an address for this link only: the host sends nothing from it elsewhere. remove takes it
// away again; it does nothing where the device had the address before.
func addAddress(device string, address netip.Addr) (remove func(), err error) {
	i, err := net.InterfaceByName(device)
	if err != nil {
		return nil, err
	}
	switch err := changeAddress(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, i.Index, address); {
	case errors.Is(err, unix.EEXIST):
		return func() {}, nil
	case err != nil:
		return nil, err
	}
	// It goes with the device, if that goes first.
	return func() { changeAddress(unix.RTM_DELADDR, 0, i.Index, address) }, nil
}

// changeAddress sends one message of rtnetlink(7) and reads the kernel's answer.
func changeAddress(kind uint16, flags uint16, index int, address netip.Addr) error {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	timeout := unix.Timeval{Sec: 5}
	if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return err
	}
	if err := unix.Sendto(s, addressMessage(kind, flags, index, address), 0,
		&unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(s, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return fmt.Errorf("the kernel's answer of %d bytes makes no sense", n)
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

// addressMessage is a struct nlmsghdr, a struct ifaddrmsg, and the address twice: as its own, and as that of a peer
// which is none.
func addressMessage(kind, flags uint16, index int, address netip.Addr) []byte {
	ip := address.As4()
	b := make([]byte, unix.SizeofNlMsghdr, 64)
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags)
	b = append(b, unix.AF_INET, 32, 0, unix.RT_SCOPE_LINK)
	b = binary.NativeEndian.AppendUint32(b, uint32(index))
	for _, attribute := range []uint16{unix.IFA_LOCAL, unix.IFA_ADDRESS} {
		b = binary.NativeEndian.AppendUint16(b, unix.SizeofRtAttr+uint16(len(ip)))
		b = binary.NativeEndian.AppendUint16(b, attribute)
		b = append(b, ip[:]...)
	}
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	return b
}
