package peer

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestPeer(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	caller, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if cred, err := Cred(conn); err != nil || int(cred.Pid) != os.Getpid() || int(cred.Uid) != os.Getuid() {
		t.Errorf("%+v, %v", cred, err)
	}
	if HungUp(conn) {
		t.Error("an open connection is taken for a closed one")
	}
	if _, err := caller.Write([]byte("x")); err != nil || HungUp(conn) {
		t.Errorf("a connection with a request is taken for a closed one: %v", err)
	}
	caller.Close()
	if HungUp(conn) {
		t.Error("a request that was sent before the end is lost")
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil || !HungUp(conn) {
		t.Errorf("a closed connection is taken for an open one: %v", err)
	}
}
