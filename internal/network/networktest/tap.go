package networktest

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// MakeTap makes a tap on a bridge of this network, as libvirt does for a card with this MAC: its address is the card's
// with another first byte, and it goes with the last process that holds the file.
func MakeTap(name, bridge string, mac net.HardwareAddr) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := setUp(fd, name, bridge, mac); err != nil {
		f.Close()
		return nil, fmt.Errorf("tap %s: %w", name, err)
	}
	return f, nil
}

func setUp(fd int, name, bridge string, mac net.HardwareAddr) error {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"link", "set", name, "address", "fe" + mac.String()[2:]},
		{"link", "set", name, "master", bridge, "up"},
	} {
		if err := ip(args...); err != nil {
			return err
		}
	}
	return nil
}
