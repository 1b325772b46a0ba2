package apiserver

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/throttle"
)

// TestFloodOfTheSocket: on the unix socket closed connections are dropped, and those of a user that connects without
// end; the busiest user's make room at once.
func TestFloodOfTheSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	made, err := ListenSocket(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	l := made.(*boundedListener)
	for range 3 {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	open, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if l.all.open != 1 || l.all.waiting != 1 {
		t.Errorf("%d connections are counted, %d without a caller", l.all.open, l.all.waiting)
	}
	l.all.mostUnknown = 1
	if wait, oldest := l.all.enter(&connection{all: l.all, party: "uid 4711"}); wait != 0 || oldest != conn {
		t.Errorf("a full socket: wait for %v, close %v", wait, oldest)
	}
	l.arrivals = throttle.NewArrivals(1, func() time.Time { return time.Time{} })
	served := 0
	for range 5000 {
		if l.arrives(4711) {
			served++
		}
	}
	if served >= 1000 || !l.arrives(4712) || !l.arrives(0) {
		t.Errorf("%d of 5000 connections of a flood were served", served)
	}
}
