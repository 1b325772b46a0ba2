package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/metadata"
)

// stackTests have guests with a network stack of their own: Linux's, in a network namespace.
func stackTests() []test {
	return []test{{"stack ping", stackPing}, {"stack metadata", stackMetadata}, {"stack closed", stackClosed}}
}

// stacked is a guest with a network stack, which has its addresses, unfiltered.
func (l *lab) stacked() (*guest, error) {
	g, err := l.guest(func(tap *os.File, s station) *exec.Cmd {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), asGuest+"="+s.mac.String())
		cmd.ExtraFiles, cmd.Stderr = []*os.File{tap}, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
		return cmd
	}, false)
	if err != nil {
		return nil, err
	}
	up := func() bool {
		_, err := l.in(g, "ip", "link", "show", "eth0", "up")
		return err == nil
	}
	if err := wait(up); err != nil {
		return g, fmt.Errorf("a guest's card: %w", err)
	}
	return g, l.configure(g, g.station)
}

// configure gives a guest's card addresses.
func (l *lab) configure(g *guest, s station) error {
	for _, line := range []string{"link set lo up", "address flush dev eth0 scope global",
		fmt.Sprintf("link set eth0 down address %v", s.mac), "link set eth0 up",
		fmt.Sprintf("address add %v/16 dev eth0", s.ip4), fmt.Sprintf("address add %v/64 dev eth0", s.ip6),
		fmt.Sprintf("route add %v dev eth0", metadata4)} {
		if _, err := l.in(g, "ip", strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

// in runs a program in a guest.
func (l *lab) in(g *guest, name string, args ...string) (string, error) {
	return l.run("nsenter", append([]string{"-t", fmt.Sprint(g.cmd.Process.Pid), "-n", "--", name}, args...)...)
}

// ping has a guest send an echo request that needs several frames, and wait for the answer.
func (l *lab) ping(g *guest, to netip.Addr) error {
	self, err := os.Executable()
	if err == nil {
		_, err = l.in(g, "env", asPing+"="+to.String(), self)
	}
	return err
}

func bePing(address string) error {
	kind, request, answer := "ip4:icmp", byte(8), byte(0)
	if netip.MustParseAddr(address).Is6() {
		kind, request, answer = "ip6:ipv6-icmp", echo, echo+1
	}
	c, err := net.Dial(kind, address)
	if err != nil {
		return err
	}
	defer c.Close()
	message := icmp(request, make([]byte, 4000)...)
	copy(message[2:], be16(0xffff-int(request)<<8)) // all else is zero; the kernel makes ICMPv6's itself
	if _, err := c.Write(message); err != nil {
		return err
	}
	c.SetReadDeadline(time.Now().Add(3 * time.Second))
	for got := make([]byte, 1<<16); ; {
		n, _, err := c.(*net.IPConn).ReadFrom(got) // without IPv4's header
		if err != nil {
			return fmt.Errorf("no answer of %s: %w", address, err)
		}
		if n > 4000 && got[0] == answer {
			return nil
		}
	}
}

const patience = 30 * time.Second

func wait(done func() bool) error {
	for deadline := time.Now().Add(patience); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v", patience)
		}
	}
	return nil
}

// beGuest is such a guest: it carries frames between its card and its tap on the host's bridge, which is file 3.
func beGuest(mac string) error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	request, err := unix.NewIfreq("eth0")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return err
	}
	if out, err := exec.Command("ip", "link", "set", "eth0", "address", mac, "up").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	for _, f := range []int{3, fd} { // a card that is down takes nothing
		if err := unix.SetNonblock(f, true); err != nil {
			return err
		}
	}
	frame := make([]byte, 1<<16)
	for {
		both := []unix.PollFd{{Fd: 3, Events: unix.POLLIN}, {Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(both, -1); err != nil && err != unix.EINTR {
			return err
		}
		for i, p := range both {
			if n, err := unix.Read(int(p.Fd), frame); err == nil {
				unix.Write(int(both[1-i].Fd), frame[:n])
			}
		}
	}
}

// with runs a case with filtered guests that have a stack.
func (l *lab) with(run func(a, b *guest) error) error {
	a, err := l.stacked()
	if err != nil {
		return err
	}
	b, err := l.stacked()
	if err == nil {
		err = errors.Join(l.fence(a), l.fence(b))
	}
	if err == nil {
		err = run(a, b)
	}
	return errors.Join(err, l.end(a, b))
}

// stackPing: what a guest's own stack sends passes, duplicate address detection included.
func stackPing(l *lab, _ *figures) error {
	return l.with(func(a, b *guest) error {
		if err := l.configure(a, a.station); err != nil { // once more, now that it is filtered
			return err
		}
		if err := wait(func() bool {
			out, err := l.in(a, "ip", "-6", "address", "show", "dev", "eth0", "tentative")
			return err == nil && strings.TrimSpace(out) == ""
		}); err != nil {
			return fmt.Errorf("duplicate address detection: %w", err)
		}
		if out, err := l.in(a, "ip", "address", "show", "dev", "eth0", "dadfailed"); err != nil || out != "" {
			return fmt.Errorf("duplicate addresses: %w: %s", err, out)
		}
		return errors.Join(l.ping(a, b.ip4), l.ping(a, b.ip6), l.ping(a, netip.MustParseAddr("10.77.0.1")),
			l.ping(a, netip.MustParseAddr("fd00:77::1")))
	})
}

// ask is how a guest asks for its metadata, with what a guest has.
const ask = `exec 3<>/dev/tcp/169.254.169.254/80
printf 'GET /latest/meta-data/instance-id HTTP/1.0\r\n\r\n' >&3
tail -n 1 <&3`

// stackMetadata: a guest gets its own metadata; with all addresses of another, its MAC included, it gets nothing.
func stackMetadata(l *lab, _ *figures) error {
	return l.with(func(a, b *guest) error {
		ctx, cancel := context.WithCancel(l.ctx)
		ended := make(chan error, 1)
		go func() {
			ended <- metadata.Serve(ctx, metadata.Options{Bridge: bridge, Log: slog.New(slog.DiscardHandler),
				Find: func(from netip.Addr) (metadata.VM, bool) {
					for _, g := range []*guest{a, b} {
						if g.ip4 == from {
							return metadata.VM{ID: g.vm.Name, MAC: g.mac, Address: netip.PrefixFrom(g.ip4, 16)}, true
						}
					}
					return metadata.VM{}, false
				}})
		}()
		get := func(g *guest) string {
			out, _ := l.in(g, "timeout", "5", "bash", "-c", ask)
			return strings.TrimSpace(out)
		}
		err := wait(func() bool { return get(a) == a.vm.Name && get(b) == b.vm.Name })
		if err == nil {
			err = l.configure(b, a.station)
		}
		if err == nil {
			if got := get(b); strings.Contains(got, a.vm.Name) {
				err = fmt.Errorf("a guest with another's addresses gets its metadata: %q", got)
			}
			if got := get(a); got != a.vm.Name {
				err = errors.Join(err, fmt.Errorf("the other one gets %q meanwhile", got))
			}
		}
		cancel()
		return errors.Join(err, <-ended)
	})
}

// stackClosed: a guest of a closed network answers the host, and cannot connect to it.
func stackClosed(l *lab, f *figures) error {
	return l.with(func(a, b *guest) error {
		server, err := net.Listen("tcp", "10.77.0.1:0")
		if err != nil {
			return err
		}
		go http.Serve(server, http.NotFoundHandler())
		defer server.Close()
		_, port, _ := net.SplitHostPort(server.Addr().String())
		connect := func() error {
			_, err := l.in(a, "timeout", "3", "bash", "-c", "exec 3<>/dev/tcp/10.77.0.1/"+port)
			return err
		}
		if err := connect(); err != nil {
			return fmt.Errorf("open, and the host is not reached: %w", err)
		}
		a.vm.Closed = true
		if err := l.fence(a); err != nil {
			return err
		}
		if connect() == nil {
			f.Leaked++
			return errors.New("a guest of a closed network connects to the host")
		}
		if l.ping(a, b.ip4) == nil || l.ping(a, b.ip6) == nil {
			f.Leaked++
			return errors.New("a guest of a closed network reaches its neighbour")
		}
		c, err := net.DialTimeout("tcp", net.JoinHostPort(a.ip4.String(), "9"), 5*time.Second)
		if err == nil {
			c.Close()
		} else if !errors.Is(err, unix.ECONNREFUSED) { // nobody listens, and the guest says so
			return fmt.Errorf("the host does not reach a guest of a closed network: %w", err)
		}
		return errors.Join(bePing(a.ip4.String()), bePing(a.ip6.String()))
	})
}
