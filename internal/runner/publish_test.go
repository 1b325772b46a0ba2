package runner

import (
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParsePublished(t *testing.T) {
	got, err := ParsePublished([]string{"8888", "80:8080"})
	if want := []Published{{8888, 0}, {80, 8080}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "0", "x", "80:", "80:0", "65536", "1:2:3", "-1"} {
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

// TestPeerIsUs asks the kernel of a real connection.
func TestPeerIsUs(t *testing.T) {
	l, err := listenAt(Published{Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if !peerIsUs(in) {
		t.Error("our own connection is a stranger's")
	}
	six, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Skip("this machine has no IPv6")
	}
	defer unix.Close(six)
	to := l.Addr().(*net.TCPAddr)
	if err := unix.Connect(six, &unix.SockaddrInet6{Port: to.Port,
		Addr: netip.MustParseAddr("::ffff:127.0.0.1").As16()}); err != nil {
		t.Fatal(err)
	}
	mapped, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer mapped.Close()
	if !peerIsUs(mapped) {
		t.Error("our own connection by a socket of IPv6 is a stranger's")
	}
	other, err := net.Listen("tcp4", l.Addr().String())
	if err == nil {
		other.Close()
		t.Error("the port is free")
	}
	if _, err := listenAt(Published{Port: 1, Here: uint16(l.Addr().(*net.TCPAddr).Port)}); err == nil {
		t.Error("a port that somebody has was taken")
	}
	free, err := listenAt(Published{Port: uint16(l.Addr().(*net.TCPAddr).Port)})
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
}
