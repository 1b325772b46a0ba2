package metadata

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What a test process of ours is for, when it is not the first one.
const (
	inNamespace = "GRANGE_TEST_IN_NAMESPACE" // the test, in a network of its own
	asGuest     = "GRANGE_TEST_URL"          // asks for that, and prints what it gets
)

func TestMain(m *testing.M) {
	if url := os.Getenv(asGuest); url != "" {
		os.Exit(printURL(url))
	}
	os.Exit(m.Run())
}

func printURL(url string) int {
	answer, err := (&http.Client{Timeout: 10 * time.Second}).Get(url)
	if err != nil || answer.StatusCode != http.StatusOK {
		return 1
	}
	defer answer.Body.Close()
	if _, err := io.Copy(os.Stdout, answer.Body); err != nil {
		return 1
	}
	return 0
}

// TestServe serves two bridges in a network of its own. The guests are processes in networks of theirs.
func TestServe(t *testing.T) { inOwnNetwork(t, testServe) }

// TestNeighbour: the kernel tells the card of one address on one device, among many.
func TestNeighbour(t *testing.T) { inOwnNetwork(t, testNeighbour) }

func testNeighbour(t *testing.T) {
	const many = 400
	var batch strings.Builder
	for _, bridge := range []string{"br0", "br1"} {
		ip(t, "link", "add", bridge, "type", "bridge")
		ip(t, "link", "set", bridge, "up")
		for n := range many {
			high, low := n/50, n%50
			fmt.Fprintf(&batch, "neigh add 10.1.%d.%d lladdr 52:54:00:%02x:%02x:%02x dev %s nud reachable\n", high, low,
				bridge[2]-'0', high, low, bridge)
		}
	}
	fmt.Fprintln(&batch, "neigh add 10.2.0.1 dev br0 nud failed")
	file := filepath.Join(t.TempDir(), "neighbours")
	if err := os.WriteFile(file, []byte(batch.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	ip(t, "-batch", file)
	for _, c := range []struct{ device, address, want string }{
		{"br0", "10.1.0.7", "52:54:00:00:00:07"},
		{"br1", "10.1.0.7", "52:54:00:01:00:07"},
		{"br0", "10.1.7.49", "52:54:00:00:07:31"},
		{"br0", "10.1.8.1", ""},
		{"br0", "10.2.0.1", ""},
		{"br1", "10.2.0.1", ""},
		{"br2", "10.1.0.7", ""},
		{"a-name-that-is-too-long", "10.1.0.7", ""},
		{"br0", "::1", ""},
	} {
		mac, ok := neighbour(c.device, netip.MustParseAddr(c.address))
		if mac.String() != c.want || ok != (c.want != "") {
			t.Errorf("%s on %s: %v, %v; want %q", c.address, c.device, mac, ok, c.want)
		}
	}
}

// inOwnNetwork runs a test in a process of its own, in a network namespace.
func inOwnNetwork(t *testing.T, do func(*testing.T)) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for network namespaces")
	}
	if os.Getenv(inNamespace) != "" {
		do(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// ip runs the program of that name.
func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("/usr/sbin/ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v\n%s", args, err, out)
	}
}

// testGuest is a process in a network of its own, whose one card is on a bridge of ours.
type testGuest struct{ pid string }

func newGuest(t *testing.T, bridge, address, mac string) testGuest {
	t.Helper()
	sleep := exec.Command("/usr/bin/sleep", "1000")
	sleep.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sleep.Process.Kill(); sleep.Wait() })
	g := testGuest{fmt.Sprint(sleep.Process.Pid)}
	port := "tap" + g.pid
	ip(t, "link", "add", port, "type", "veth", "peer", "name", "eth0", "address", mac, "netns", g.pid)
	ip(t, "link", "set", port, "master", bridge, "up")
	for _, args := range [][]string{{"addr", "add", address + "/16", "dev", "eth0"}, {"link", "set", "eth0", "up"},
		{"route", "add", Address.String(), "dev", "eth0"}} {
		if out, err := g.command("/usr/sbin/ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v in a guest: %v\n%s", args, err, out)
		}
	}
	return g
}

func (g testGuest) command(name string, args ...string) *exec.Cmd {
	return exec.Command("/usr/bin/nsenter", append([]string{"-t", g.pid, "-n", "--", name}, args...)...)
}

// get asks the service; "" where it gave nothing.
func (g testGuest) get(path string) string {
	cmd := g.command(os.Args[0])
	cmd.Env = append(os.Environ(), asGuest+"=http://"+Address.String()+path)
	out, _ := cmd.Output()
	return string(out)
}

func testServe(t *testing.T) {
	ip(t, "link", "set", "lo", "up")
	for n, bridge := range []string{"br0", "br1", "br2"} {
		ip(t, "link", "add", bridge, "type", "bridge")
		if bridge != "br2" { // the host need not be in its VMs' network
			ip(t, "addr", "add", fmt.Sprintf("10.%d.0.1/16", n+1), "dev", bridge)
		}
		ip(t, "link", "set", bridge, "up")
	}
	ip(t, "addr", "add", Address.String()+"/32", "dev", "br1")
	vm := func(bridge, address, mac string) Options {
		hardware, err := net.ParseMAC(mac)
		if err != nil {
			t.Fatal(err)
		}
		v := VM{ID: "vm of " + bridge, Address: netip.PrefixFrom(netip.MustParseAddr(address), 16), MAC: hardware}
		return Options{Bridge: bridge, Log: slog.New(slog.DiscardHandler),
			Find: func(a netip.Addr) (VM, bool) { return v, a == v.Address.Addr() }}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	serve := func(o Options) { ended <- Serve(ctx, o) }
	first, second := vm("br0", "10.1.0.7", "52:54:0a:01:00:07"), vm("br1", "10.2.0.7", "52:54:0a:02:00:07")
	go serve(first)
	go serve(second)
	go serve(vm("br2", "10.3.0.7", "52:54:0a:03:00:07"))
	a, b := newGuest(t, "br0", "10.1.0.7", "52:54:0a:01:00:07"), newGuest(t, "br1", "10.2.0.7", "52:54:0a:02:00:07")
	third := newGuest(t, "br2", "10.3.0.7", "52:54:0a:03:00:07")
	liar := newGuest(t, "br1", "10.1.0.7", "52:54:0a:01:00:07") // has all of the first VM, on another bridge
	stranger := newGuest(t, "br0", "10.1.0.9", "52:54:0a:01:00:09")
	const path = "/latest/meta-data/instance-id"
	for name, c := range map[string]struct {
		guest testGuest
		want  string
	}{"first": {a, "vm of br0"}, "second": {b, "vm of br1"}, "third": {third, "vm of br2"}, "liar": {liar,
		""}, "stranger": {stranger, ""}} {
		got := c.guest.get(path)
		// the service may have begun behind us; wget itself waits
		for try := 0; got == "" && c.want != "" && try < 20; try++ {
			c.guest.command("/usr/bin/sleep", "0.1").Run()
			got = c.guest.get(path)
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if err := Serve(t.Context(), Options{Bridge: "br9", Log: slog.New(slog.DiscardHandler)}); err == nil {
		t.Error("serves a bridge that is not there")
	}
	if err := Serve(t.Context(), first); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("serves a bridge twice: %v", err)
	}
	cancel()
	for range 3 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	out, err := exec.Command("/usr/sbin/ip", "-o", "-4", "addr", "show").Output()
	if err != nil || strings.Contains(string(out), "br0    inet 169.254") ||
		!strings.Contains(string(out), "br1    inet 169.254") {
		t.Errorf("addresses at the end, %v:\n%s", err, out)
	}
}
