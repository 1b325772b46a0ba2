package metadata

import (
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// atfComplete is ATF_COM of <linux/if_arp.h>: the kernel knows the entry's hardware address.
const atfComplete = 0x2

// arpRequest is struct arpreq of <linux/if_arp.h>, which arp(7) describes.
type arpRequest struct {
	protocol unix.RawSockaddrInet4
	hardware unix.RawSockaddr
	flags    int32
	mask     unix.RawSockaddr
	device   [unix.IFNAMSIZ]byte
}

// neighbour returns the hardware address that an address has on a device. It asks the kernel for this one: a VM makes
// the agent ask with each request, and the whole table is long where there are many VMs.
func neighbour(device string, address netip.Addr) (net.HardwareAddr, bool) {
	if !address.Is4() || len(device) >= unix.IFNAMSIZ {
		return nil, false
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, false
	}
	defer unix.Close(s)
	r := arpRequest{protocol: unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: address.As4()}}
	copy(r.device[:], device)
	_, _, code := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCGARP, uintptr(unsafe.Pointer(&r)))
	if code != 0 || r.flags&atfComplete == 0 || r.hardware.Family != unix.ARPHRD_ETHER {
		return nil, false
	}
	mac := make(net.HardwareAddr, 0, 6)
	for _, b := range r.hardware.Data[:6] {
		mac = append(mac, byte(b))
	}
	return mac, true
}
