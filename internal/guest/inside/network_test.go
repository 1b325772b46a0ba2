package inside

import (
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/waittest"
)

// TestAddresses sets both families up in a network of its own, each alone, twice, with a gateway in the network or
// beside it.
func TestAddresses(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes a network namespace")
	}
	// The thread is not unlocked: it ends with the test, and the namespaces with it.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	for _, m := range [][2]string{{"proc", "/proc"}, {"sysfs", "/sys"}} { // /proc/sys/net is of who mounted it
		if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(m[0], m[1], m[0], 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	ip := func(words string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(words)...).CombinedOutput()
		if err != nil {
			t.Fatalf("ip %s: %v: %s", words, err, out)
		}
		return string(out)
	}
	ip("link add host type veth peer name eth0") // the peer is the first card
	ip("link set host up")
	for _, a := range []guest.Address{{CIDR: "2001:db8::20/64", Gateway: "2001:db8::1"},
		{CIDR: "2001:db8::20/64", Gateway: "2001:db8::1"}} {
		if err := setUpAddress6(a); err != nil {
			t.Fatal(err)
		}
	}
	if i, err := net.InterfaceByName("eth0"); err != nil || i.Flags&net.FlagUp == 0 {
		t.Fatalf("%+v, %v", i, err)
	}
	waittest.For(t, "the kernel sees that the link is up", func() bool {
		text := ip("-6 address show dev eth0")
		return strings.Contains(text, "2001:db8::20/64") && !strings.Contains(text, "tentative")
	})
	if text := ip("-6 route show default"); !strings.Contains(text, "default via 2001:db8::1 dev eth0 metric 1024") {
		t.Error(text)
	}
	ip("-6 route flush default")
	if err := setUpAddress6(guest.Address{CIDR: "2001:db8::21/64", Gateway: "fe80::1"}); err != nil {
		t.Fatal(err)
	}
	if text := ip("-6 route show default"); !strings.Contains(text, "via fe80::1") {
		t.Error(text)
	}
	if err := setUpAddress(guest.Address{CIDR: "10.1.0.20/24", Gateway: "10.1.0.1"}); err != nil {
		t.Fatal(err)
	}
	if text := ip("address show dev eth0"); !strings.Contains(text, "10.1.0.20/24") || !strings.Contains(text, "2001:db8::20/64") {
		t.Error(text)
	}
	for _, bad := range []guest.Address{{CIDR: "10.0.0.1/8"}, {CIDR: "x"}, {CIDR: "2001:db8::1/64", Gateway: "10.0.0.1"}} {
		if setUpAddress6(bad) == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
