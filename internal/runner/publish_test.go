package runner

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/api"
)

func TestParsePublished(t *testing.T) {
	got, err := ParsePublished([]string{"8888", "80:8080", "1@hub", "2:3@hub"})
	want := []Published{{8888, 0, ""}, {80, 8080, ""}, {1, 0, "hub"}, {2, 3, "hub"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "0", "x", "80:", "80:0", "65536", "1:2:3", "-1", "@hub", "1@", "1@:2"} {
		if _, err := ParsePublished([]string{text}); err == nil {
			t.Errorf("%q passed", text)
		}
	}
	if _, err := ParsePublished(strings.Split(strings.Repeat("80 ", 17), " ")[:17]); err == nil {
		t.Error("17 ports passed")
	}
}

// TestOwnerOf: a connection whose owner has closed it, and one that is on its way, are nobody's, though the kernel's
// list says root's.
func TestOwnerOf(t *testing.T) {
	const list = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 0 100 0 0 10 0
   1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 12 1 0 20 4 30 10 -1
   2: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     7        0 13 1 0 20 4 30 10 -1
   3: 0100007F:C351 0100007F:1F90 05 00000000:00000000 00:00000000 00000000     0        0 0 1 0
   4: 0100007F:C352 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 0 1 0
`
	here := netip.MustParseAddrPort("127.0.0.1:8080")
	for port, want := range map[uint16]int{50000: 1000, 50001: -1, 50002: -1, 50003: -1} {
		uid, ok := ownerOf(strings.NewReader(list), netip.AddrPortFrom(here.Addr(), port), here)
		if !ok {
			uid = -1
		}
		if uid != want {
			t.Errorf("port %d is user %d's, not %d's", port, uid, want)
		}
	}
}

// TestPeerUser asks the kernel of real connections, by a socket of either family.
func TestPeerUser(t *testing.T) {
	l, err := listenAt("127.0.0.1", Published{Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	six, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Skip("this machine has no IPv6")
	}
	defer unix.Close(six)
	for family, connect := range map[string]func() error{
		"IPv4": func() error {
			out, err := net.Dial("tcp", l.Addr().String())
			if err == nil {
				t.Cleanup(func() { out.Close() })
			}
			return err
		},
		"IPv6": func() error {
			return unix.Connect(six, &unix.SockaddrInet6{Port: l.Addr().(*net.TCPAddr).Port,
				Addr: netip.MustParseAddr("::ffff:127.0.0.1").As16()})
		}} {
		if err := connect(); err != nil {
			t.Fatal(err)
		}
		in, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		users := newPeerUsers(l.Addr())
		defer users.close()
		if users.kernel == nil {
			t.Skip("this kernel has no sock_diag")
		}
		for how, p := range map[string]*peerUsers{"sock_diag": users, "the list": {}} {
			if uid, ok := p.of(in); !ok || uid != os.Getuid() {
				t.Errorf("our own connection by a socket of %s is user %d's, %v, by %s", family, uid, ok, how)
			}
		}
	}
}

// TestHungUp: a connection that was closed is nobody's and is seen to have ended, whoever made it, without a look at
// the list of all; one that is open has not ended.
func TestHungUp(t *testing.T) {
	l, err := listenAt("127.0.0.1", Published{Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	users := newPeerUsers(l.Addr())
	defer users.close()
	if users.kernel == nil {
		t.Skip("this kernel has no sock_diag")
	}
	for how, end := range map[string]func(*net.TCPConn){
		"open":       nil,
		"closed":     func(c *net.TCPConn) { c.Close() },
		"half":       func(c *net.TCPConn) { c.CloseWrite() },
		"with reset": func(c *net.TCPConn) { c.SetLinger(0); c.Close() },
	} {
		out, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		if end != nil {
			end(out.(*net.TCPConn))
		}
		in, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		if got := hungUp(in); got != (end != nil) {
			t.Errorf("%s: hung up is %v", how, got)
		}
		if _, ok := users.of(in); ok != (end == nil) {
			t.Errorf("%s: somebody's is %v", how, ok)
		}
	}
}

// TestFloodOfPort: the owner of a port is let through while connections come that their maker has ended.
func TestFloodOfPort(t *testing.T) {
	l, err := listenAt("127.0.0.1", Published{Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := door{Listener: l, port: 1}
	for range 500 { // they wait to be accepted
		out, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		out.Close()
	}
	out, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	carried := make(chan string, 1)
	began := time.Now()
	go d.accept(func(c *net.TCPConn) { carried <- c.RemoteAddr().String() })
	select {
	case from := <-carried:
		if took := time.Since(began); from != out.LocalAddr().String() || took > 2*time.Second {
			t.Errorf("%s was carried, after %v behind 500 connections that have ended", from, took)
		}
	case <-time.After(time.Minute):
		t.Error("the owner's connection is not carried")
	}
}

func TestListenAt(t *testing.T) {
	l, err := listenAt("127.0.0.1", Published{Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := uint16(l.Addr().(*net.TCPAddr).Port)
	if other, err := listenAt("127.0.0.1", Published{Port: 1, Here: taken}); err == nil {
		other.Close()
		t.Error("a port that somebody has was taken")
	}
	free, err := listenAt("127.0.0.1", Published{Port: taken})
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
}

// TestAudience: who is let through over the loopback has an account, and from other hosts an address; an account is
// nobody's because another audience has it.
func TestAudience(t *testing.T) {
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	from := func(address string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
		out, err := d.Dial("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(l.Addr().(*net.TCPAddr).Port)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { out.Close() })
		in, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { in.Close() })
		return in
	}
	far, err := audienceOf(api.PublishTo{Name: "far", Hosts: []string{"127.0.0.2"}})
	if err != nil {
		t.Fatal(err)
	}
	const stranger = 61299
	users := newPeerUsers(l.Addr())
	defer users.close()
	hub := audience{name: "hub", uids: []uint32{stranger}}
	for _, c := range []struct {
		who  audience
		from string
		want bool
	}{{far, "127.0.0.2", true}, {far, "127.0.0.1", false}, {audience{}, "127.0.0.1", true}, {hub, "127.0.0.1", true}} {
		if got := c.who.admits(from(c.from), users); got != c.want {
			t.Errorf("%s admits %s: %v", c.who, c.from, got)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("to be another user needs root")
	}
	for user, want := range map[uint32]bool{stranger: true, stranger + 1: false} {
		if got := hub.admits(connectedAs(t, user), users); got != want {
			t.Errorf("user %d is admitted: %v", user, got)
		}
	}
}

// connectedAs is a connection over the loopback that a user made.
func connectedAs(t *testing.T, user uint32) net.Conn {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	cmd := exec.Command("/bin/bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/"+port+" && cat <&3")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return in
}
