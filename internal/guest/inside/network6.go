package inside

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/guest"
)

// setUpAddress6 gives the first network card the IPv6 address that the host chose.
func setUpAddress6(a guest.Address) error {
	own, err := netip.ParsePrefix(a.CIDR)
	if err != nil || !own.Addr().Is6() {
		return fmt.Errorf("address %q", a.CIDR)
	}
	gateway, err := netip.ParseAddr(a.Gateway)
	if a.Gateway != "" && (err != nil || !gateway.Is6()) {
		return fmt.Errorf("gateway %q", a.Gateway)
	}
	if hasAddress(net.IP(own.Addr().AsSlice())) { // a full image may have set it up itself
		return nil
	}
	if err := loadModules("net"); err != nil {
		return err
	}
	s, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	card, err := firstCard()
	if err != nil {
		return err
	}
	if err := plainIPv6(card, gateway.IsValid()); err != nil {
		return err
	}
	for _, name := range []string{"lo", card} {
		if err := interfaceUp(s, name); err != nil {
			return err
		}
	}
	i, err := net.InterfaceByName(card)
	if err != nil {
		return err
	}
	if err := addAddress6(s, i.Index, own); err != nil {
		return fmt.Errorf("%v: %w", own, err)
	}
	if gateway.IsValid() {
		if err := addDefaultRoute6(s, i.Index, gateway); err != nil {
			return fmt.Errorf("gateway %v: %w", gateway, err)
		}
	}
	return setNameServers(a.DNS)
}

// plainIPv6 has a card take no address but the one that it is given, and take that at once: nobody else has it, and a
// job would find it tentative for a second or two. With a gateway of its own it takes no router's word.
func plainIPv6(card string, gateway bool) error {
	keys := []string{"accept_dad", "autoconf"}
	if gateway {
		keys = append(keys, "accept_ra")
	}
	for _, key := range keys {
		path := filepath.Join("/proc/sys/net/ipv6/conf", card, key)
		err := os.WriteFile(path, []byte("0"), 0)
		if errors.Is(err, fs.ErrNotExist) {
			return errors.New("this kernel has no IPv6")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// address6 is struct in6_ifreq of <linux/ipv6.h>.
type address6 struct {
	address [16]byte
	bits    uint32
	index   int32
}

func addAddress6(s, index int, own netip.Prefix) error {
	r := address6{address: own.Addr().As16(), bits: uint32(own.Bits()), index: int32(index)}
	return ioctl(s, unix.SIOCSIFADDR, unsafe.Pointer(&r))
}

// route6 is struct in6_rtmsg of <linux/ipv6_route.h> on 64-bit machines.
type route6 struct {
	dst, src, gateway [16]byte
	kind              uint32
	dstBits, srcBits  uint16
	metric            uint32
	_                 uint32
	info              uint64
	flags             uint32
	index             int32
}

func addDefaultRoute6(s, index int, gateway netip.Addr) error {
	const metric = 1024 // as ip-route(8) adds them
	r := route6{gateway: gateway.As16(), metric: metric, flags: unix.RTF_UP | unix.RTF_GATEWAY, index: int32(index)}
	return ioctl(s, unix.SIOCADDRT, unsafe.Pointer(&r))
}

// ioctl asks the kernel for a change; one that is made already is no error.
func ioctl(s int, request uintptr, argument unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s), request, uintptr(argument)); errno != 0 &&
		errno != unix.EEXIST {
		return errno
	}
	return nil
}
