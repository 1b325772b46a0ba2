package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/network"
)

// dhcpTests have guests that ask for their addresses, as a cloud image does, and the host's dnsmasq.
func dhcpTests() []test {
	return []test{{"dhcp lease", dhcpLease}, {"dhcp ip6 alone", dhcpIP6}, {"dhcp of others", dhcpOfOthers},
		{"dhcp forward", dhcpForward}, {"dhcp closed", dhcpClosed}, {"dhcp killed", dhcpKilled},
		{"dhcp cycles", dhcpCycles}}
}

var (
	dhcp4 = netip.MustParsePrefix("10.77.0.2/16")
	dhcp6 = netip.MustParsePrefix("fd00:77::2/64")
)

// served runs a case on a host that serves its bridge, and looks for what is left of that.
func (l *lab) served(f *figures, addresses []netip.Prefix, run func() error, forward ...netip.Addr) error {
	l.settings.Host.DHCP = map[farm.Network]farm.DHCPServer{
		farm.NetworkBridge(bridge): {Addresses: addresses, Domain: "vms.test", Forward: forward}}
	defer func() { l.settings = network.Settings{} }()
	err := run()
	left, leftErr := l.serversLeft()
	f.Left += left
	return errors.Join(err, leftErr)
}

// serversLeft counts what there is of servers: their directories, cards and processes.
func (l *lab) serversLeft() (int, error) {
	links, err := l.run("ip", "-oneline", "link", "show", "type", "veth")
	own, nsErr := os.Readlink("/proc/self/ns/net")
	dir := filepath.Join("/run/grange/dhcp", strings.Trim(strings.TrimPrefix(own, "net:"), "[]"), bridge)
	n := strings.Count(links, "\n")
	if _, err := os.Stat(dir); err == nil {
		n++
	}
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range commands {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), dir+"/") {
			n++
		}
	}
	return n, errors.Join(err, nsErr)
}

// asking is a guest with a stack, and no address but its link-local one.
func (l *lab) asking(name string) (*guest, error) {
	g, err := l.stacked()
	if err != nil {
		return g, err
	}
	g.vm.Host = name
	if _, err := l.in(g, "ip", "address", "flush", "dev", "eth0", "scope", "global"); err != nil {
		return g, err
	}
	return g, l.fence(g)
}

// leased is what busybox's DHCP client hands to its script.
func (l *lab) leased(g *guest) (map[string]string, error) {
	script := filepath.Join(os.TempDir(), fmt.Sprint("grange-udhcpc-", os.Getpid()))
	if err := os.WriteFile(script, []byte("#!/bin/sh\n[ \"$1\" != bound ] || env\n"), 0o700); err != nil {
		return nil, err
	}
	defer os.Remove(script)
	out, err := l.in(g, "busybox", "udhcpc", "-i", "eth0", "-f", "-q", "-n", "-t", "5", "-T", "1", "-s", script)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for line := range strings.Lines(out) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			all[key] = value
		}
	}
	return all, nil
}

// wants compares what a client was told.
func wants(got map[string]string, want map[string]string) (err error) {
	for key, value := range want {
		if got[key] != value {
			err = errors.Join(err, fmt.Errorf("%s is %q, want %q", key, got[key], value))
		}
	}
	return err
}

// resolves asks the server for a name, as a guest does.
func (l *lab) resolves(g *guest, name string, server netip.Prefix, want string) error {
	out, err := l.in(g, "busybox", "nslookup", name, server.Addr().String())
	if want == "" {
		if err == nil {
			return fmt.Errorf("%s is known: %s", name, out)
		}
		return nil
	}
	if err == nil && !strings.Contains(out, want) {
		err = fmt.Errorf("%s is not %s: %s", name, want, out)
	}
	return err
}

// dhcpLease: guests get what they were given, and know each other by name; one that was given nothing gets nothing.
func dhcpLease(l *lab, f *figures) error {
	return l.served(f, []netip.Prefix{dhcp4, dhcp6}, func() error {
		if err := l.must("ip link set br0 mtu 1400"); err != nil {
			return err
		}
		defer l.must("ip link set br0 mtu 1500")
		a, err := l.asking("wn-a.example.org")
		if err != nil {
			return err
		}
		got, err := l.leased(a)
		err = errors.Join(err, wants(got, map[string]string{"ip": a.ip4.String(), "mask": "16", "mtu": "1400",
			"router": gateway.String(), "dns": dhcp4.Addr().String(), "domain": "vms.test"}))
		b, bErr := l.asking("WN-B")
		if err = errors.Join(err, bErr); err != nil {
			return err
		}
		again, err := l.asking("wn-a") // the name is taken
		if err != nil {
			return err
		}
		if err := errors.Join(l.must("ip link show br0"), l.configure(a, a.station)); err != nil {
			return err
		}
		err = errors.Join(l.resolves(a, "wn-b.vms.test", dhcp4, b.ip4.String()), l.resolves(a, "wn-b", dhcp4,
			b.ip4.String()), l.resolves(a, "wn-a", dhcp4, a.ip4.String()), l.resolves(a, "wn-c.vms.test", dhcp4, ""),
			l.resolves(a, "example.org", dhcp4, ""), l.end(b))
		err = errors.Join(err, l.resolves(a, "wn-b", dhcp4, ""))
		stranger, sErr := l.stacked()
		if err = errors.Join(err, sErr); err != nil {
			return err
		}
		if got, err := l.leased(stranger); err == nil {
			return fmt.Errorf("a guest that was not given anything gets %v", got)
		}
		return errors.Join(err, l.end(a, again, stranger))
	})
}

// dhcpIP6: a guest with IPv6 alone learns the prefix from the server's announcement, and its address by DHCPv6.
func dhcpIP6(l *lab, f *figures) error {
	return l.served(f, []netip.Prefix{dhcp6}, func() error {
		a, err := l.asking("six")
		if err != nil {
			return err
		}
		a.vm.Addresses = a.vm.Addresses[1:]
		b, err := l.asking("seven")
		if err != nil {
			return err
		}
		if err := l.fence(a); err != nil {
			return err
		}
		got, err := l.ask6(a)
		if err != nil || got.address != a.ip6 || got.dns != dhcp6.Addr() {
			return errors.Join(err, fmt.Errorf("it gets %+v, want %v and %v", got, a.ip6, dhcp6.Addr()))
		}
		if _, err := l.in(a, "ip", "address", "add", a.ip6.String()+"/128", "dev", "eth0", "nodad"); err != nil {
			return err
		}
		if err := wait(func() bool { // the prefix is on the link, by the announcement
			out, err := l.in(a, "ip", "-6", "route", "show", dhcp6.Masked().String())
			return err == nil && strings.Contains(out, "proto kernel")
		}); err != nil {
			return fmt.Errorf("the prefix is not announced: %w", err)
		}
		out, err := l.in(a, "ip", "-6", "route", "show", "default")
		if strings.TrimSpace(out) != "" {
			err = errors.Join(err, fmt.Errorf("the server is a router: %s", out))
		}
		return errors.Join(err, l.resolves(a, "seven", dhcp6, b.ip6.String()), l.end(a, b))
	})
}

// dhcpOfOthers: answers of another server do not reach a guest, and the host's do not leave it.
func dhcpOfOthers(l *lab, f *figures) error {
	return l.served(f, []netip.Prefix{dhcp4, dhcp6}, func() error {
		a, err := l.raw()
		if err != nil {
			return err
		}
		up := l.uplink
		answers := [][]byte{eth(a.mac, up.mac, typeIP4, ip4(up.ip4, a.ip4, protoUDP, 0, udp(67, 68, "offer"))),
			eth(nil, up.mac, typeIP4, ip4(up.ip4, all4, protoUDP, 0, udp(67, 68, "offer"))),
			eth(a.mac, up.mac, typeIP6, ip6(up.linkLocal, a.linkLocal, protoUDP, udp(547, 546, "advertise")))}
		err = errors.Join(arrive("no server", up, answers, a), l.fence(a), f.leak("answers of others", up, answers, a))
		up.received()
		b, bErr := l.asking("asks")
		if err = errors.Join(err, bErr); err != nil {
			return err
		}
		_, err = l.leased(b)
		_, err6 := l.ask6(b)
		for _, frame := range up.received() {
			if len(frame) > 60 && frame[12] == 0x08 && frame[23] == protoUDP && frame[35] == 67 {
				f.Leaked++
				err = errors.Join(err, errors.New("an answer of DHCP leaves the host"))
			}
			if len(frame) > 60 && frame[12] == 0x86 && frame[20] == proto6 && frame[54] == 134 {
				f.Leaked++
				err = errors.Join(err, errors.New("an announcement leaves the host"))
			}
		}
		return errors.Join(err, err6, l.end(a, b))
	})
}

// dhcpForward: other names are those of the name server that the site configures, and the domain's are not asked of it.
func dhcpForward(l *lab, f *figures) error {
	upstream := netip.MustParseAddr("10.77.0.1")
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: upstream.AsSlice(), Port: 53})
	if err != nil {
		return err
	}
	defer conn.Close()
	go answerNames(conn)
	return l.served(f, []netip.Prefix{dhcp4, dhcp6}, func() error {
		a, err := l.asking("a")
		if err == nil {
			err = l.configure(a, a.station)
		}
		if err != nil {
			return err
		}
		return errors.Join(l.resolves(a, "example.org", dhcp4, outside.String()),
			l.resolves(a, "b.vms.test", dhcp4, ""), l.end(a))
	}, upstream)
}

// answerNames answers that every name has the address outside, and none of IPv6.
func answerNames(conn *net.UDPConn) {
	for question := make([]byte, 1500); ; {
		n, from, err := conn.ReadFromUDP(question)
		if err != nil {
			return
		}
		end := 12
		for end < n && question[end] != 0 {
			end += int(question[end]) + 1
		}
		if end += 5; end > n {
			continue
		}
		count := 0
		if question[end-3] == 1 { // A
			count = 1
		}
		answer := slices.Concat(question[:2], []byte{0x81, 0x80, 0, 1, 0, byte(count), 0, 0, 0, 0}, question[12:end])
		if count == 1 {
			answer = slices.Concat(answer, []byte{0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4}, outside.AsSlice())
		}
		conn.WriteToUDP(answer, from)
	}
}

// dhcpClosed: guests of a closed network that isolates have the server, and each other no more than without it.
func dhcpClosed(l *lab, f *figures) error {
	return l.served(f, []netip.Prefix{dhcp4, dhcp6}, func() error {
		a, err := l.asking("closed")
		if err != nil {
			return err
		}
		a.vm.Closed, a.vm.Isolated = true, true
		b, err := l.asking("beside")
		if err = errors.Join(err, l.fence(a)); err != nil {
			return err
		}
		got, err := l.leased(a)
		err = errors.Join(err, wants(got, map[string]string{"ip": a.ip4.String()}), l.configure(a, a.station),
			l.configure(b, b.station), l.resolves(a, "beside", dhcp4, b.ip4.String()))
		if l.ping(a, dhcp4.Addr()) == nil || l.ping(a, b.ip4) == nil {
			f.Leaked++
			err = errors.Join(err, errors.New("a guest of a closed network reaches more than names"))
		}
		return errors.Join(err, l.end(a, b))
	})
}

// dhcpKilled: a server that is killed runs again after the agent's next look, with all of its guests, and so does one
// whose card is unplugged. One that is not configured any more ends.
func dhcpKilled(l *lab, f *figures) error {
	return l.served(f, []netip.Prefix{dhcp4, dhcp6}, func() error {
		a, err := l.asking("a")
		if err != nil {
			return err
		}
		works := func() error {
			got, err := l.leased(a)
			return errors.Join(err, wants(got, map[string]string{"ip": a.ip4.String()}))
		}
		all := network.Servers()
		if len(all) != 1 || all[0].VMs != 1 || all[0].PID == 0 {
			return fmt.Errorf("servers: %+v", all)
		}
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", all[0].PID))
		if err != nil || filepath.Base(exe) != "dnsmasq" {
			return fmt.Errorf("the server's process is %s, %w", exe, err)
		}
		if info, err := os.Stat(fmt.Sprintf("/proc/%d", all[0].PID)); err != nil ||
			info.Sys().(*syscall.Stat_t).Uid == 0 {
			return fmt.Errorf("the server is root's, or %w", err)
		}
		syscall.Kill(all[0].PID, syscall.SIGKILL)
		ended := wait(func() bool { now := network.Servers(); return len(now) == 1 && now[0].PID == 0 })
		err = errors.Join(ended, l.restore(a), works(), l.must("ip link delete "+l.serverPort()), l.restore(a), works(),
			l.restore(a))
		before := network.Servers()
		if err := errors.Join(err, l.restore(a)); err != nil {
			return err
		}
		if after := network.Servers(); len(after) != 1 || after[0].PID != before[0].PID {
			return fmt.Errorf("a look starts it again: %+v, %+v", before, after)
		}
		configured := l.settings
		l.settings = network.Settings{}
		err = l.restore(a)
		if left := network.Servers(); len(left) > 0 {
			err = errors.Join(err, fmt.Errorf("not configured any more: %+v", left))
		}
		l.settings = configured
		return errors.Join(err, l.restore(a), works(), l.end(a))
	})
}

// serverPort is the name of the server's card in the bridge.
func (l *lab) serverPort() string {
	out, _ := l.run("ip", "-oneline", "link", "show", "type", "veth")
	_, name, _ := strings.Cut(out, ": ")
	name, _, _ = strings.Cut(name, "@")
	return name
}

// dhcpCycles has another process serve guests until it is killed somewhere. Every fourth guest runs on, and gets what
// it was given after the next look; of the others nothing is left.
func dhcpCycles(l *lab, f *figures) error {
	return l.served(f, []netip.Prefix{dhcp4, dhcp6}, func() error {
		for n := range max(1, f.Cycles/5) { // each has servers to start
			if l.ctx.Err() != nil {
				return l.ctx.Err()
			}
			if err := l.killedServing(n); err != nil {
				return fmt.Errorf("cycle %d: %w", n, err)
			}
			f.Killed++
			var left int
			var err error
			wait(func() bool { // a process that is still held ends by itself
				left, err = l.serversLeft()
				return err != nil || left == 0
			})
			if err != nil || left > 0 {
				f.Left += left
				return fmt.Errorf("cycle %d: %d are left: %w", n, left, err)
			}
		}
		return nil
	})
}

func (l *lab) killedServing(n int) error {
	stays, begin := n%4 == 0, l.raw
	if stays {
		begin = l.stacked
	}
	g, err := begin()
	if err != nil {
		return err
	}
	text, err := json.Marshal(order{g.vm, l.settings})
	if err != nil {
		return err
	}
	agent := exec.Command("/proc/self/exe")
	agent.Env = append(os.Environ(), asAgent+"="+string(text))
	agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := agent.Start(); err != nil {
		return err
	}
	time.Sleep(time.Duration(rand.IntN(600)) * time.Millisecond)
	agent.Process.Kill()
	agent.Wait()
	if !stays {
		g.kill()
		return l.restore()
	}
	if err := l.restore(g); err != nil {
		return err
	}
	got, err := l.leased(g)
	return errors.Join(err, wants(got, map[string]string{"ip": g.ip4.String()}), l.end(g))
}
