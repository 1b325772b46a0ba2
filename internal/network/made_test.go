package network_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/network"
	"github.com/grange-project/grange/internal/network/networktest"
)

// space is a network namespace: a host's, or a guest's.
type space struct {
	t   *testing.T
	do  chan func()
	tid int
}

func newSpace(t *testing.T) *space {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes a network namespace")
	}
	s := &space{t: t, do: make(chan func())}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the namespace
		s.tid = unix.Gettid()
		failed <- unix.Unshare(unix.CLONE_NEWNET)
		for f := range s.do {
			f()
		}
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(s.do) })
	s.run("ip link set dev lo up")
	return s
}

// in calls f in the namespace.
func (s *space) in(f func()) {
	done := make(chan struct{})
	s.do <- func() { defer close(done); f() }
	<-done
}

// try runs a command in the namespace.
func (s *space) try(command string) (out string, err error) {
	s.in(func() {
		words := strings.Fields(command)
		var text []byte
		text, err = exec.CommandContext(s.t.Context(), words[0], words[1:]...).CombinedOutput()
		out = string(text)
	})
	return out, err
}

func (s *space) run(commands ...string) (out string) {
	s.t.Helper()
	for _, command := range commands {
		text, err := s.try(command)
		if err != nil {
			s.t.Fatalf("%s: %v: %s", command, err, text)
		}
		out = text
	}
	return out
}

// prepare prepares a VM on a host.
func (s *space) prepare(n farm.Network, name string, settings network.Settings) (card hyper.Card, err error) {
	s.in(func() {
		card, err = network.Of(n).Prepare(s.t.Context(), network.VM{Name: name, Network: n}, settings)
	})
	return card, err
}

func (s *space) release(n farm.Network, name string) {
	s.t.Helper()
	var err error
	s.in(func() { err = network.Of(n).Release(s.t.Context(), name) })
	if err != nil {
		s.t.Error(err)
	}
}

// links is what a host has of links, and their forwarding databases, without what settles by itself.
func (s *space) links() string {
	s.t.Helper()
	out := s.run("ip -oneline link show")
	for _, word := range []string{"NO-CARRIER,", ",LOWER_UP", " state UP", " state DOWN", " state UNKNOWN"} {
		out = strings.ReplaceAll(out, word, "")
	}
	var lines, own []string
	for line := range strings.Lines(out) {
		line, address, _ := strings.Cut(line, "link/ether ") // another one each time
		address, _, _ = strings.Cut(address, " ")
		own = append(own, address)
		_, line, _ = strings.Cut(line, ": ")
		lines = append(lines, strings.TrimSpace(line))
	}
	for line := range strings.Lines(s.run("bridge fdb show")) {
		address, of, _ := strings.Cut(line, " ")
		if address[:3] == "0a:" && !slices.Contains(own, address) || address == "00:00:00:00:00:00" {
			lines = append(lines, of)
		}
	}
	return strings.Join(lines, "\n")
}

// overlay is the settings of a host among others.
func overlay(local string, peers ...string) network.Settings {
	o := farm.Overlay{Local: netip.MustParseAddr(local), VNIs: farm.IDs{{First: 7000, Last: 7999}}}
	for _, p := range peers {
		o.Peers = append(o.Peers, netip.MustParseAddr(p))
	}
	return network.Settings{Host: farm.HostNetworks{Overlay: o}}
}

const overlayNetwork = farm.Network("vxlan:7001")

// TestNo8021Q: a host whose kernel has no VLANs says so, and keeps nothing.
func TestNo8021Q(t *testing.T) {
	s := newSpace(t)
	s.run(card...)
	if out, err := s.try("ip link add name v0 link eno2 type vlan id 5"); err == nil {
		t.Skip("needs a kernel without 802.1Q: " + out)
	}
	before := s.links()
	trunks := map[string]farm.IDs{"eno2": {{First: 100, Last: 199}}}
	settings := network.Settings{Host: farm.HostNetworks{Trunks: trunks}}
	_, err := s.prepare("vlan:120", "grange-00000001", settings)
	if !farm.IsCode(err, farm.CodeNotCarried) || !strings.Contains(err.Error(), "802.1Q") {
		t.Errorf("%v, want an error that says that the kernel has no 802.1Q", err)
	}
	s.release("vlan:120", "grange-00000001")
	if after := s.links(); after != before {
		t.Errorf("the host has\n%s\nand had\n%s", after, before)
	}
}

// TestCutShort: an agent that was killed at any step leaves what the next one goes on with, or removes.
func TestCutShort(t *testing.T) {
	needs(t, "ip link add name v0 type vxlan id 7001 local 192.0.2.1 dstport 4789")
	settings := overlay("127.0.0.1", "127.0.0.2")
	steps := []string{
		"ip link add name gvxlan7001 group 1735552615 type bridge forward_delay 0 mcast_snooping 0",
		"bridge fdb replace 0a:31:6d:0a:68:8a dev gvxlan7001 self permanent",
		"ip link add name gvxlan7001p group 1735552615 type vxlan id 7001 local 127.0.0.1 dstport 4789",
		"bridge fdb append 00:00:00:00:00:00 dev gvxlan7001p dst 127.0.0.2 self permanent",
		"ip link set dev gvxlan7001p master gvxlan7001 up",
	}
	whole := newSpace(t)
	before := whole.links()
	if _, err := whole.prepare(overlayNetwork, "grange-00000001", settings); err != nil {
		t.Fatal(err)
	}
	want := whole.links()
	for n := range len(steps) + 1 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := newSpace(t)
			s.run(steps[:n]...)
			s.release(overlayNetwork, "grange-00000001")
			if after := s.links(); after != before {
				t.Errorf("after %d steps and a release the host has\n%s\nand had\n%s", n, after, before)
			}
			s.run(steps[:n]...)
			if _, err := s.prepare(overlayNetwork, "grange-00000001", settings); err != nil {
				t.Fatal(err)
			}
			if after := s.links(); after != want {
				t.Errorf("after %d steps a new agent makes\n%s\nand wanted is\n%s", n, after, want)
			}
		})
	}
}

// TestNotOurs: what an administrator made is neither used nor removed, whatever its name.
func TestNotOurs(t *testing.T) {
	s := newSpace(t)
	s.run("ip link add gvxlan7001 type bridge")
	before := s.links()
	_, err := s.prepare(overlayNetwork, "grange-00000001", overlay("127.0.0.1"))
	if !farm.IsCode(err, network.CodeNotMade) || !strings.Contains(err.Error(), "gvxlan7001") {
		t.Errorf("%v", err)
	}
	s.release(overlayNetwork, "grange-00000001")
	if after := s.links(); after != before {
		t.Errorf("the host has\n%s\nand had\n%s", after, before)
	}
}

// TestReplugged: a bridge that somebody removed under a VM is made again, with the VM on it. Peers that are configured
// later are added, and others go.
func TestReplugged(t *testing.T) {
	needs(t, "ip link add name v0 type vxlan id 7001 local 192.0.2.1 dstport 4789")
	s := newSpace(t)
	_, err := s.prepare(overlayNetwork, "grange-00000001", overlay("127.0.0.1", "127.0.0.2", "127.0.0.3"))
	if err != nil {
		t.Fatal(err)
	}
	var tap int
	s.in(func() { tap = openTap(t, "vnet0") })
	defer unix.Close(tap)
	s.run("ip link set vnet0 address fe"+networktest.MAC[2:], // as libvirt gives taps
		"ip link set vnet0 master gvxlan7001", "ip link del gvxlan7001")
	vm := network.VM{Name: "grange-00000001", Network: overlayNetwork, PID: os.Getpid(), MAC: networktest.MAC}
	for range 2 {
		s.in(func() {
			network.Restore(t.Context(), []network.VM{vm}, overlay("127.0.0.1", "127.0.0.3", "127.0.0.4"),
				func(_ network.VM, err error) { t.Error(err) })
		})
		ports, peers := s.run("ip link show master gvxlan7001"), s.run("bridge fdb show dev gvxlan7001p")
		if !strings.Contains(ports, "vnet0") || !strings.Contains(ports, "gvxlan7001p") {
			t.Errorf("on the bridge are\n%s", ports)
		}
		if strings.Contains(peers, "127.0.0.2") || strings.Count(peers, "127.0.0.3") != 1 ||
			strings.Count(peers, "127.0.0.4") != 1 {
			t.Errorf("it sends to\n%s", peers)
		}
	}
	s.release(overlayNetwork, "grange-00000001")
	if out := s.run("ip link show"); !strings.Contains(out, "gvxlan7001") {
		t.Errorf("the bridge is gone with a VM on it:\n%s", out)
	}
	unix.Close(tap)
	s.release(overlayNetwork, "grange-00000002")
	if out := s.run("ip link show"); strings.Contains(out, "gvxlan7001") {
		t.Errorf("the bridge stays, and nobody is on it:\n%s", out)
	}
}

// openTap makes a tap device, as QEMU holds one.
func openTap(t *testing.T, name string) int {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	request := struct {
		name  [unix.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}{flags: unix.IFF_TAP | unix.IFF_NO_PI}
	copy(request.name[:], name)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNSETIFF, uintptr(unsafe.Pointer(&request))); e != 0 {
		t.Fatal(e)
	}
	return fd
}

// TestOverlay: guests of two hosts reach each other by IPv4 and IPv6 over a hosts' network of either family, guests of
// another VXLAN network see nothing of it, and all goes with the last VM.
func TestOverlay(t *testing.T) {
	needs(t, "ip link add name v0 type vxlan id 7001 local 192.0.2.1 dstport 4789")
	for _, peers := range [][2]string{{"192.0.2.1", "192.0.2.2"}, {"2001:db8::1", "2001:db8::2"}} {
		t.Run(peers[0], func(t *testing.T) {
			a, b := newSpace(t), newSpace(t)
			a.run(fmt.Sprintf("ip link add eno2 type veth peer name eno2 netns %d", b.tid))
			for i, s := range []*space{a, b} {
				s.run(fmt.Sprintf("ip address add 192.0.2.%d/24 dev eno2", i+1),
					fmt.Sprintf("ip address add 2001:db8::%d/64 dev eno2 nodad", i+1), "ip link set eno2 up")
			}
			one, two := guest(t, a, "vxlan:7001", 1, overlay(peers[0], peers[:]...)),
				guest(t, b, "vxlan:7001", 2, overlay(peers[1], peers[:]...))
			other := guest(t, b, "vxlan:7002", 3, overlay(peers[1], peers[:]...))
			one.reaches(two, "10.7.0.2")
			one.reaches(two, "fd07::2")
			two.reaches(one, "10.7.0.1")
			for _, to := range []string{"10.7.0.1", "10.7.0.2", "fd07::2"} {
				if _, err := other.dial(to, time.Second); err == nil || errors.Is(err, unix.ECONNREFUSED) {
					t.Errorf("a guest of another network reaches %s: %v", to, err)
				}
			}
			for i, s := range []*space{a, b, b} {
				s.try(fmt.Sprintf("ip link del tap%d", i+1))
				s.release(overlayNetwork, fmt.Sprintf("grange-0000000%d", i+1))
			}
			for _, s := range []*space{a, b} {
				if out := s.run("ip link show") + s.run("bridge fdb show"); strings.Contains(out, "gvxlan") {
					t.Errorf("left:\n%s", out)
				}
			}
		})
	}
}

const testPort = "7007"

// dial connects to a guest that listens.
func (s *space) dial(to string, limit time.Duration) (conn net.Conn, err error) {
	s.in(func() { conn, err = net.DialTimeout("tcp", net.JoinHostPort(to, testPort), limit) })
	return conn, err
}

// reaches sends more to another guest than one frame has.
func (s *space) reaches(other *space, address string) {
	s.t.Helper()
	var l net.Listener
	var err error
	other.in(func() { l, err = net.Listen("tcp", net.JoinHostPort(address, testPort)) })
	if err != nil {
		s.t.Fatal(err)
	}
	defer l.Close()
	const size = 1 << 20
	got := make(chan int64)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			got <- 0
			return
		}
		defer conn.Close()
		n, _ := io.Copy(io.Discard, conn)
		got <- n
	}()
	conn, err := s.dial(address, 20*time.Second)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := conn.Write(make([]byte, size)); err != nil {
		s.t.Error(err)
	}
	conn.Close()
	if n := <-got; n != size {
		s.t.Errorf("%s got %d bytes of %d", address, n, size)
	}
}

// guest plugs a guest of its own namespace into a network of a host.
func guest(t *testing.T, host *space, n farm.Network, number int, settings network.Settings) *space {
	t.Helper()
	c, err := host.prepare(n, fmt.Sprintf("grange-0000000%d", number), settings)
	if err != nil {
		t.Fatal(err)
	}
	g := newSpace(t)
	host.run(fmt.Sprintf("ip link add tap%d type veth peer name eth0 netns %d", number, g.tid),
		fmt.Sprintf("ip link set tap%d master %s up", number, c.Bridge))
	if c.MTU == 0 {
		c.MTU = 1500
	}
	g.run(fmt.Sprintf("ip link set eth0 mtu %d", c.MTU), fmt.Sprintf("ip address add 10.7.0.%d/24 dev eth0", number),
		fmt.Sprintf("ip address add fd07::%d/64 dev eth0 nodad", number), "ip link set eth0 up")
	return g
}
