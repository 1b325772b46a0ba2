package usernet

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/waittest"
)

func TestRules(t *testing.T) {
	text := Rules(farm.UIDs{First: 64055, Last: 64055},
		[]netip.Addr{netip.MustParseAddr("127.0.0.53"), netip.MustParseAddr("fe80::1%eth0")},
		Reach{Allow: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:3128")},
			Closed: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}})
	for _, want := range []string{"users_64055_64055 oif \"lo\" meta skuid 64055 goto",
		"ip daddr 127.0.0.53 meta l4proto { tcp, udp } th dport 53 accept", "ip6 daddr fe80::1 meta",
		"to_host ip daddr 192.0.2.1 meta l4proto { tcp, udp } th dport 3128 accept",
		"to_site ip daddr 192.0.2.1 meta l4proto { tcp, udp } th dport 3128 accept",
		"to_site ip daddr 198.51.100.0/24 counter reject", "to_site ip6 daddr fe80::/10 counter reject"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestResolvers(t *testing.T) {
	got := Resolvers("# none\nsearch a b\nnameserver 127.0.0.53\n  nameserver\tfe80::1%eth0 # " +
		"x\nnameserver\nnameserver ten\nnameserver ::ffff:10.0.0.1\n")
	want := []netip.Addr{netip.MustParseAddr("127.0.0.53"), netip.MustParseAddr("fe80::1%eth0"),
		netip.MustParseAddr("10.0.0.1")}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// stranger is an account that nobody has.
const stranger = 61099

// TestFence fences a process of an ordinary account, in a network of its own that has an address beside the loopback.
func TestFence(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes a network namespace and rules for it")
	}
	if _, err := lookPath("nft"); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("grange-fence-%d", os.Getpid())
	run(t, "ip", "netns", "add", name)
	t.Cleanup(func() { run(t, "ip", "netns", "del", name) })
	inside := func(args ...string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "ip", append([]string{"netns", "exec", name}, args...)...)
	}
	for _, args := range [][]string{{"link", "set", "lo", "up"}, {"addr", "add", "192.0.2.1/32", "dev", "lo"}} {
		if out, err := inside(append([]string{"ip"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	// Another machine of the site, on a closed network and on one that is not.
	site := name + "-site"
	run(t, "ip", "netns", "add", site)
	t.Cleanup(func() { run(t, "ip", "netns", "del", site) })
	run(t, "ip", "-n", name, "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", site)
	for card, of := range map[string]struct{ netns, last string }{"v0": {name, "1"}, "v1": {site, "2"}} {
		run(t, "ip", "-n", of.netns, "address", "add", "198.51.100."+of.last+"/24", "dev", card)
		run(t, "ip", "-n", of.netns, "address", "add", "203.0.113."+of.last+"/24", "dev", card)
		run(t, "ip", "-n", of.netns, "link", "set", card, "up")
	}
	for _, server := range []*exec.Cmd{inside("/usr/bin/python3", "-c", servers),
		exec.CommandContext(t.Context(), "ip", "netns", "exec", site, "/usr/bin/python3", "-c", servers)} {
		server.Stderr = os.Stderr
		ready, err := server.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		start(t, server)
		if _, err := ready.Read(make([]byte, 16)); err != nil {
			t.Fatal(err)
		}
	}
	qemu := inside("setpriv", "--reuid", fmt.Sprint(stranger), "--regid", fmt.Sprint(stranger), "--clear-groups",
		"sleep", "600")
	start(t, qemu)
	until(t, func() bool { p, err := PlaceOf(qemu.Process.Pid); return err == nil && p.UID == stranger })

	reaches := func(uid int, kind, address string, port int) bool {
		cmd := inside("setpriv", "--reuid", fmt.Sprint(uid), "--regid", fmt.Sprint(uid), "--clear-groups",
			"/usr/bin/python3", "-c", client, kind, address, fmt.Sprint(port))
		out, err := cmd.CombinedOutput()
		if err != nil && !strings.Contains(string(out), "Connection refused") &&
			!strings.Contains(string(out), "Operation not permitted") {
			t.Fatalf("%v: %s", err, out)
		}
		return err == nil
	}
	if !reaches(stranger, "tcp", "127.0.0.1", 8001) || !reaches(stranger, "udp", "192.0.2.1", 8002) {
		t.Fatal("the servers do not answer before there are rules")
	}
	reach := Reach{Closed: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")},
		Allow: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:8003"), netip.MustParseAddrPort("198.51.100.2:8003")}}
	for range 2 { // as every ten seconds
		if err := Fence(t.Context(), qemu.Process.Pid, farm.UIDs{}, reach); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		uid     int
		kind    string
		address string
		port    int
		want    bool
	}{
		{stranger, "tcp", "127.0.0.1", 8001, false}, {stranger, "tcp", "192.0.2.1", 8001, false},
		{stranger, "tcp", "::1", 8001, false},
		{stranger, "udp", "127.0.0.1", 8002, false}, {stranger, "udp", "192.0.2.1", 8002, false},
		{stranger, "tcp", "192.0.2.1", 8003, true}, {stranger, "tcp", "127.0.0.1", 8003, false},
		{stranger + 1, "tcp", "127.0.0.1", 8001, true}, {0, "udp", "192.0.2.1", 8002, true},
		{stranger, "tcp", "198.51.100.2", 8001, false}, {stranger, "udp", "198.51.100.2", 8002, false},
		{stranger, "tcp", "198.51.100.2", 8003, true}, {stranger, "tcp", "203.0.113.2", 8001, true},
		{stranger + 1, "tcp", "198.51.100.2", 8001, true},
		{0, "tcp", "127.0.0.1", 8004, true}, // a server that runs as the fenced user
	} {
		if got := reaches(c.uid, c.kind, c.address, c.port); got != c.want {
			t.Errorf("user %d reaches %s %s port %d: %v, want %v", c.uid, c.kind, c.address, c.port, got, c.want)
		}
	}
	// Where QEMU runs as one of the users of VMs, all of them are fenced before their first VM is.
	if err := Fence(t.Context(), qemu.Process.Pid, farm.UIDs{First: stranger - 1, Last: stranger + 1},
		Reach{}); err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[int]bool{stranger - 1: false, stranger: false, stranger + 1: false, stranger + 2: true} {
		if got := reaches(uid, "tcp", "127.0.0.1", 8001); got != want {
			t.Errorf("user %d reaches the loopback: %v, want %v", uid, got, want)
		}
	}
}

// TestNoFence refuses what it cannot fence.
func TestNoFence(t *testing.T) {
	root := exec.Command("sleep", "60")
	start(t, root)
	if os.Getuid() == 0 {
		err := Fence(t.Context(), root.Process.Pid, farm.UIDs{}, Reach{})
		if !farm.IsCode(err, farm.CodeNoUserNetwork) {
			t.Errorf("a QEMU of root: %v", err)
		}
	}
	if err := Fence(t.Context(), 1<<30, farm.UIDs{}, Reach{}); !farm.IsCode(err, farm.CodeNoUserNetwork) {
		t.Errorf("a QEMU that has ended: %v", err)
	}
}

func run(t *testing.T, argv ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waittest.Limit)
	defer cancel()
	if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", argv, err, out)
	}
}

// start starts a process that ends with the test, with all that it starts.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); cmd.Wait() })
}

func until(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waittest.Limit); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never so")
		}
	}
}

// servers answer on TCP ports 8001, 8003 and 8004, the last as the stranger, and on UDP port 8002.
const servers = `
import os, socket, threading
def tcp(port):
    s = socket.socket(socket.AF_INET6); s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0); s.bind(("::", port)); s.listen(16)
    def serve():
        while True:
            c, _ = s.accept(); c.sendall(b"hello"); c.close()
    return serve
def udp(port):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("0.0.0.0", port))
    def serve():
        while True:
            _, a = s.recvfrom(100); s.sendto(b"hello", a)
    return serve
all = [tcp(8001), tcp(8003), udp(8002)]
if os.fork() == 0:
    os.setuid(61099)
    tcp(8004)()
for serve in all: threading.Thread(target=serve).start()
import time; time.sleep(0.3)
print("ready", flush=True)
`

const client = `
import socket, sys
kind, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
s.settimeout(3)
s.connect((address, port))
if kind == "udp": s.send(b"x")
assert s.recv(5) == b"hello"
`
