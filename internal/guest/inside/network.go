package inside

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/guest"
)

// The addresses of QEMU's user-mode network: https://www.qemu.org/docs/master/system/devices/net.html
var (
	userAddress = net.IPv4(10, 0, 2, 15)
	userGateway = net.IPv4(10, 0, 2, 2)
)

const userDNS = "10.0.2.3"

// setUpNetwork gives the first network card its place in the user-mode network. Full images do that by DHCP themselves.
func setUpNetwork() error {
	return setUpCard(userAddress, net.CIDRMask(24, 32), userGateway, []string{userDNS})
}

// setUpAddress gives the first network card the address that the host chose.
func setUpAddress(a guest.Address) error {
	ip, network, err := net.ParseCIDR(a.CIDR)
	if err != nil {
		return err
	}
	var gateway net.IP
	if a.Gateway != "" {
		if gateway = net.ParseIP(a.Gateway); gateway.To4() == nil {
			return fmt.Errorf("gateway %q", a.Gateway)
		}
	}
	if !hasAddress(ip) { // a full image may have set it up itself, and has name servers where it wants them
		if err := setUpCard(ip, network.Mask, gateway, a.DNS); err != nil {
			return err
		}
	}
	return addLinkRoutes(a.OnLink)
}

// hasAddress reports whether some card has the address.
func hasAddress(ip net.IP) bool {
	addresses, _ := net.InterfaceAddrs()
	return slices.ContainsFunc(addresses, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(ip)
	})
}

// addLinkRoutes sends packets for the addresses straight to the first card's wire.
func addLinkRoutes(addresses []string) error {
	if len(addresses) == 0 {
		return nil
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	card, err := firstCard()
	if err != nil {
		return err
	}
	device, err := unix.BytePtrFromString(card)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		ip := net.ParseIP(a).To4()
		if ip == nil {
			return fmt.Errorf("address %q", a)
		}
		r := routeEntry{flags: unix.RTF_UP | unix.RTF_HOST, device: device}
		copy(r.dst.Addr[:], ip)
		copy(r.genmask.Addr[:], net.IPv4bcast.To4())
		if err := addRoute(s, &r); err != nil {
			return fmt.Errorf("route to %s: %w", a, err)
		}
	}
	return nil
}

func setUpCard(ip net.IP, mask net.IPMask, gateway net.IP, dns []string) error {
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
	card, err := firstCard()
	if err != nil {
		return err
	}
	if err := setAddress(s, card, unix.SIOCSIFADDR, ip); err != nil {
		return err
	}
	if err := setAddress(s, card, unix.SIOCSIFNETMASK, net.IP(mask)); err != nil {
		return err
	}
	if err := interfaceUp(s, card); err != nil {
		return err
	}
	if gateway != nil {
		if err := addDefaultRoute(s, gateway); err != nil {
			return err
		}
	}
	return setNameServers(dns)
}

func setNameServers(all []string) error {
	if len(all) == 0 {
		return nil
	}
	return os.WriteFile("/etc/resolv.conf", []byte("nameserver "+strings.Join(all, "\nnameserver ")+"\n"), 0o644)
}

// firstCard is the name of the first network card, which is not eth0 in images that name cards after their slots.
func firstCard() (string, error) {
	const timeout = 10 * time.Second // where udev loads the driver
	for deadline := time.Now().Add(timeout); ; time.Sleep(2 * time.Millisecond) {
		cards, err := net.Interfaces()
		if err != nil {
			return "", err
		}
		for _, c := range cards {
			if c.Flags&net.FlagLoopback == 0 && len(c.HardwareAddr) == 6 {
				return c.Name, nil
			}
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("no network card after %v", timeout)
		}
	}
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
	_                     [30]byte
	device                *byte
	_                     [24]byte
}

func addDefaultRoute(s int, gateway net.IP) error {
	r := routeEntry{flags: unix.RTF_UP | unix.RTF_GATEWAY}
	copy(r.gateway.Addr[:], gateway.To4())
	return addRoute(s, &r)
}

// addRoute adds a route; one that is there is no error.
func addRoute(s int, r *routeEntry) error {
	for _, a := range []*unix.RawSockaddrInet4{&r.dst, &r.gateway, &r.genmask} {
		a.Family = unix.AF_INET
	}
	return ioctl(s, unix.SIOCADDRT, unsafe.Pointer(r))
}
