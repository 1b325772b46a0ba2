package inside

import (
	"fmt"
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The addresses of QEMU's user-mode network: https://www.qemu.org/docs/master/system/devices/net.html
var (
	userAddress = net.IPv4(10, 0, 2, 15)
	userGateway = net.IPv4(10, 0, 2, 2)
)

const userDNS = "10.0.2.3"

// setUpNetwork gives the first network card its place in the user-mode network. Full images do that by DHCP themselves.
func setUpNetwork() error {
	if err := loadModules("net"); err != nil {
		return err
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	if err := interfaceUp(s, "lo"); err != nil {
		return err
	}
	if err := setAddress(s, "eth0", unix.SIOCSIFADDR, userAddress); err != nil {
		return err
	}
	if err := setAddress(s, "eth0", unix.SIOCSIFNETMASK, net.IPv4(255, 255, 255, 0)); err != nil {
		return err
	}
	if err := interfaceUp(s, "eth0"); err != nil {
		return err
	}
	if err := addDefaultRoute(s, userGateway); err != nil {
		return err
	}
	return os.WriteFile("/etc/resolv.conf", []byte("nameserver "+userDNS+"\n"), 0o644)
}

func interfaceUp(s int, name string) error {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(s, unix.SIOCGIFFLAGS, req); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	req.SetUint16(req.Uint16() | unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, req)
}

func setAddress(s int, name string, ioctl uint, ip net.IP) error {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := req.SetInet4Addr(ip.To4()); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(s, ioctl, req); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// routeEntry is struct rtentry of <linux/route.h> on 64-bit machines.
type routeEntry struct {
	_                     uint64
	dst, gateway, genmask unix.RawSockaddrInet4
	flags                 uint16
	_                     [38]byte
	_                     [24]byte
}

func addDefaultRoute(s int, gateway net.IP) error {
	r := routeEntry{flags: unix.RTF_UP | unix.RTF_GATEWAY}
	for _, a := range []*unix.RawSockaddrInet4{&r.dst, &r.gateway, &r.genmask} {
		a.Family = unix.AF_INET
	}
	copy(r.gateway.Addr[:], gateway.To4())
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCADDRT, uintptr(unsafe.Pointer(&r))); errno != 0 && errno != unix.EEXIST {
		return errno
	}
	return nil
}
