package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/network"
	"github.com/grange-project/grange/internal/network/networktest"
)

const bridge = "br0"

// lab is a host in a network namespace of its own, with a bridge and its uplink.
type lab struct {
	ctx    context.Context
	uplink *guest // a machine behind the uplink: nobody filters it
	made   int
	// what the host's agent is configured to
	settings network.Settings
}

// newLab sets this process's network up.
func newLab(ctx context.Context) (*lab, error) {
	l := &lab{ctx: ctx}
	for _, line := range []string{"link set lo up", "link add br0 type bridge mcast_snooping 0", "link set br0 up",
		"address add 10.77.0.1/16 dev br0", "address add fd00:77::1/64 dev br0 nodad"} {
		if _, err := l.run("ip", strings.Fields(line)...); err != nil {
			return nil, err
		}
	}
	// Where the host's kernel has br_netfilter, it would drop forged packets for other reasons than ours.
	for _, family := range []string{"arptables", "iptables", "ip6tables"} {
		os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-"+family, []byte("0"), 0o644)
	}
	var err error
	l.uplink, err = l.raw()
	if err == nil {
		l.uplink.ip4 = gateway
	}
	return l, err
}

func (l *lab) run(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return string(out), nil
}

// guest is a machine with a tap on the bridge, which a process holds as QEMU would.
type guest struct {
	station
	vm  network.VM
	cmd *exec.Cmd
	fd  int // -1: its process reads and writes it
}

// station has addresses of its own; those of IPv6 follow from the MAC.
func (l *lab) station() station {
	l.made++
	s := station{mac: net.HardwareAddr{0x52, 0x54, 0x0a, 0x4d, byte(l.made >> 8), byte(l.made)},
		ip4: netip.AddrFrom4([4]byte{10, 77, byte(l.made>>8) + 1, byte(l.made)})}
	id := [8]byte{s.mac[0] ^ 2, s.mac[1], s.mac[2], 0xff, 0xfe, s.mac[3], s.mac[4], s.mac[5]}
	s.linkLocal = netip.AddrFrom16([16]byte{0xfe, 0x80, 8: id[0], id[1], id[2], id[3], id[4], id[5], id[6], id[7]})
	s.ip6 = netip.MustParseAddr(fmt.Sprintf("fd00:77::%x", 0x1000+l.made))
	return s
}

// raw is a guest whose frames are written and read by us.
func (l *lab) raw() (*guest, error) {
	return l.guest(asleep, true)
}

// asleep is a process that holds a tap, and no more.
func asleep(tap *os.File, _ station) *exec.Cmd {
	cmd := exec.Command("sleep", "3600")
	cmd.ExtraFiles = []*os.File{tap}
	return cmd
}

// guest makes one, with a process that begin has made.
func (l *lab) guest(begin func(*os.File, station) *exec.Cmd, raw bool) (*guest, error) {
	return l.guestOn(farm.NetworkBridge(bridge), begin, raw)
}

// guestOn makes one on the bridge of a network, which is there.
func (l *lab) guestOn(n farm.Network, begin func(*os.File, station) *exec.Cmd, raw bool) (*guest, error) {
	s := l.station()
	// The name of one that has ended comes again, as with libvirt.
	name := "vnet0"
	for n := 1; ; n++ {
		if _, err := net.InterfaceByName(name); err != nil {
			break
		}
		name = fmt.Sprint("vnet", n)
	}
	tap, err := networktest.MakeTap(name, n.Bridge(), s.mac)
	if err != nil {
		return nil, err
	}
	defer tap.Close()
	g := &guest{station: s, fd: -1, cmd: begin(tap, s)}
	if g.cmd.SysProcAttr == nil {
		g.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	g.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := g.cmd.Start(); err != nil {
		return nil, err
	}
	if raw {
		// not for other children: who holds the tap keeps it
		if g.fd, err = unix.FcntlInt(tap.Fd(), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			err = unix.SetNonblock(g.fd, true)
		}
	}
	g.vm = network.VM{Name: fmt.Sprintf("grange-%08d", l.made), Network: n,
		MAC: s.mac.String(), PID: g.cmd.Process.Pid, Gateways: []netip.Addr{gateway},
		Addresses: []netip.Prefix{netip.PrefixFrom(s.ip4, 16), netip.PrefixFrom(s.ip6, 64)}}
	return g, err
}

// fence filters a guest as the agent does before its first instruction.
func (l *lab) fence(g *guest) error {
	return network.Of(g.vm.Network).Fence(l.ctx, g.vm, l.settings)
}

// end ends a guest's machine, and releases its network.
func (l *lab) end(guests ...*guest) error {
	for _, g := range guests {
		g.kill()
		if err := network.Of(g.vm.Network).Release(l.ctx, g.vm.Name); err != nil {
			return err
		}
	}
	return nil
}

func (g *guest) kill() {
	if g.fd >= 0 {
		unix.Close(g.fd)
		g.fd = -1
	}
	g.cmd.Process.Kill()
	g.cmd.Wait()
}

// send has a guest send frames.
func (g *guest) send(frames [][]byte) error {
	for _, f := range frames {
		if _, err := unix.Write(g.fd, f); err != nil {
			return fmt.Errorf("send a frame: %w", err)
		}
	}
	return nil
}

// quiet is how long nothing comes any more before all has come: the kernel hands frames on while they are written.
const quiet = 20 // milliseconds

// received are frames that have come for a guest since it was last looked.
func (g *guest) received() (frames [][]byte) {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(g.fd), Events: unix.POLLIN}}, quiet)
		if err == unix.EINTR {
			continue
		}
		if n == 0 || err != nil {
			return frames
		}
		frame := make([]byte, 4096)
		if n, err = unix.Read(g.fd, frame); err == nil {
			frames = append(frames, frame[:n])
		}
	}
}

// arrived counts those of the frames that a guest has got.
func (g *guest) arrived(sent [][]byte) (n int, lost []int) {
	got := g.received()
	for i, f := range sent {
		there := false
		for _, have := range got {
			if bytes.Equal(have, f) {
				there = true
			}
		}
		if there {
			n++
		} else {
			lost = append(lost, i)
		}
	}
	return n, lost
}

// carried has one guest send frames, and counts those that any of others has got.
func carried(from *guest, frames [][]byte, others ...*guest) (n int, lost []int, err error) {
	for _, o := range others {
		o.received()
	}
	if err := from.send(frames); err != nil {
		return 0, nil, err
	}
	for _, o := range others {
		if at, missing := o.arrived(frames); at >= n {
			n, lost = at, missing
		}
	}
	return n, lost, nil
}

// restore is what the agent does every few seconds.
func (l *lab) restore(guests ...*guest) (err error) {
	var all []network.VM
	for _, g := range guests {
		all = append(all, g.vm)
	}
	network.Restore(l.ctx, all, l.settings, func(vm network.VM, failed error) {
		err = errors.Join(err, fmt.Errorf("%s: %w", vm.Name, failed))
	})
	return err
}

// left counts what is left of guests on the host: lines of rules, taps, shapers, and ports of the bridge, beside the
// uplink.
func (l *lab) left() (int, error) {
	rules, err := l.run("nft", "list", "ruleset")
	if err != nil {
		return 0, err
	}
	links, err := l.run("ip", "-oneline", "link", "show", "master", bridge)
	if err != nil {
		return 0, err
	}
	shapers, err := l.run("tc", "qdisc", "show")
	return strings.Count(rules, "\n") + strings.Count(links, "\n") - 1 + strings.Count(shapers, "tbf"), err
}
