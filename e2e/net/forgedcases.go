package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"
)

// forgedTests send each kind of forged frame twice: without a filter it must arrive, or the case would show nothing;
// with one it must arrive at neither the neighbour nor the uplink.
func forgedTests() (all []test) {
	for _, c := range forgeries {
		all = append(all, test{"forged " + c.name, func(l *lab, f *figures) error {
			return l.between(func(a, b *guest) error {
				frames := c.frames(a.station, b.station)
				n, lost, err := carried(a, frames, b)
				if err != nil || n != len(frames) {
					return fmt.Errorf("without filters %d of %d frames arrive, not %v: %w", n, len(frames), lost, err)
				}
				if err := l.fence(a); err != nil {
					return err
				}
				if n, _, err = carried(a, frames, b, l.uplink); err != nil {
					return err
				}
				f.Frames += len(frames)
				f.Spoofed += n
				if n > 0 {
					return fmt.Errorf("%d of %d frames arrive: %w", n, len(frames), l.which(a, b, frames))
				}
				return l.honestly(a, b)
			})
		}})
	}
	return append(all, test{"forged reserved", reserved})
}

// reserved has a guest send to its host by the addresses that bridges keep for themselves: the kernel gives some of
// them to the host as from the tap itself, past the bridge and its filters.
func reserved(l *lab, f *figures) error {
	// The kernel must not drop them for another reason than ours.
	for _, of := range []string{"all", "default"} {
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+of+"/rp_filter", []byte("0"), 0o644); err != nil {
			return err
		}
	}
	host, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.77.0.1:9")))
	if err != nil {
		return err
	}
	defer host.Close()
	return l.between(func(a, b *guest) error {
		var frames [][]byte
		for last := range byte(16) {
			for _, from := range []netip.Addr{a.ip4, b.ip4} {
				if last == 0 && from == a.ip4 {
					continue // honest: a bridge without a spanning tree forwards it as any multicast
				}
				frames = append(frames, eth(net.HardwareAddr{1, 0x80, 0xc2, 0, 0, last}, a.mac, typeIP4,
					ip4(from, netip.MustParseAddr("10.77.0.1"), protoUDP, 0, udp(9, 9, "reserved"))))
			}
		}
		if n, err := heard(a, frames, host); err != nil || n == 0 {
			return errors.Join(errors.New("without filters the host hears none of them"), err)
		}
		if err := l.fence(a); err != nil {
			return err
		}
		n, err := heard(a, frames, host)
		f.Frames += len(frames)
		f.Spoofed += n
		if err != nil || n > 0 {
			return errors.Join(fmt.Errorf("the host hears %d of %d", n, len(frames)), err)
		}
		return l.honestly(a, b)
	})
}

// heard is how many frames of a guest come to a socket of the host.
func heard(from *guest, frames [][]byte, at net.Conn) (n int, err error) {
	if err := from.send(frames); err != nil {
		return 0, err
	}
	if err := at.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return 0, err
	}
	for text := make([]byte, 100); ; n++ {
		if _, err := at.Read(text); err != nil {
			return n, nil
		}
	}
}

// which names the frames that arrive, one by one.
func (l *lab) which(a, b *guest, frames [][]byte) error {
	var all []int
	for i := range frames {
		if n, _, err := carried(a, frames[i:i+1], b, l.uplink); err != nil || n > 0 {
			all = append(all, i)
		}
	}
	return fmt.Errorf("those with the numbers %v", all)
}

// honestly wants one honest frame to arrive: a filter that lets nothing pass would pass every case.
func (l *lab) honestly(a, b *guest) error {
	frames := [][]byte{eth(nil, a.mac, typeARP, arp(1, a.mac, a.ip4, nil, b.ip4))}
	if n, _, err := carried(a, frames, b); err != nil || n != 1 {
		return fmt.Errorf("an honest frame does not arrive: %w", err)
	}
	return nil
}

// between runs a case with two raw guests on the bridge, unfiltered. The bridge knows where they are.
func (l *lab) between(run func(a, b *guest) error) error {
	a, err := l.raw()
	if err != nil {
		return err
	}
	b, err := l.raw()
	if err != nil {
		a.kill()
		return err
	}
	err = run(a, b)
	if ended := l.end(a, b); err == nil {
		err = ended
	}
	return err
}

// honestTests want what is honest to arrive, all of it.
func honestTests() (all []test) {
	for _, c := range honest {
		all = append(all, test{"honest " + c.name, func(l *lab, _ *figures) error {
			return l.between(func(a, b *guest) error {
				if err := l.fence(a); err != nil {
					return err
				}
				if err := l.fence(b); err != nil {
					return err
				}
				frames := c.frames(a.station, b.station)
				if n, lost, err := carried(a, frames, b); err != nil || n != len(frames) {
					return fmt.Errorf("%d of %d frames arrive, not %v: %w", n, len(frames), lost, err)
				}
				return nil
			})
		}})
	}
	return all
}
