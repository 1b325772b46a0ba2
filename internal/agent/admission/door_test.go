package admission

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/peer"
	"github.com/grange-project/grange/internal/procstat"
	"github.com/grange-project/grange/internal/throttle"
)

// mostOfOne is how many connections a user may have in tests.
const mostOfOne = 20

// knock opens a door at which nobody is free of limits, on a socket of its own.
func knock(t *testing.T, log io.Writer) (*Door, func() net.Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	d := NewDoor(l.(*net.UnixListener), new(Shares), Limits{Connections: func() int { return mostOfOne },
		Free: func(uint32) bool { return false }}, slog.New(slog.NewTextHandler(log, nil)))
	return d, func() net.Conn {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
}

// TestConnectionsOfAUser: one too many is closed, and when one has gone the next is served.
func TestConnectionsOfAUser(t *testing.T) {
	d, dial := knock(t, io.Discard)
	var held []net.Conn
	for range mostOfOne {
		dial()
		conn, err := d.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if start, err := procstat.Started(os.Getpid()); err != nil || conn.(*Connection).Start != start {
			t.Fatalf("the caller started at %d, not %d: %v", start, conn.(*Connection).Start, err)
		}
		held = append(held, conn)
	}
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	accepted := make(chan net.Conn, 1)
	go func() {
		if conn, err := d.Accept(); err == nil {
			accepted <- conn
		}
	}()
	if n, err := dial().Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("one too many: %d, %v; want the end", n, err)
	}
	held[0].Close()
	held[0].Close() // which counts once
	dial()
	held[0] = <-accepted
	if d.shares.Enter(held[0].(*Connection).mustUID(t), mostOfOne) {
		t.Error("a connection that was closed twice counts twice")
	}
	if !d.shares.Enter(4711, mostOfOne) {
		t.Error("another user's connections count")
	}
	d.shares.Leave(4711)
}

func (c *Connection) mustUID(t *testing.T) uint32 {
	cred, err := peer.Cred(c.UnixConn)
	if err != nil {
		t.Fatal(err)
	}
	return cred.Uid
}

// TestFloodOfConnections: a user that connects without end is dropped unread, and logged; root is served.
func TestFloodOfConnections(t *testing.T) {
	var log strings.Builder
	d, _ := knock(t, &log)
	now := time.Now()
	d.arrivals = throttle.NewArrivals(1, func() time.Time { return now })
	served := 0
	for range 10_000 {
		if d.enter(4711) {
			served++
			d.shares.Leave(4711)
		} else {
			d.report(4711)
		}
	}
	if served >= 1000 || !d.enter(4712) {
		t.Errorf("%d of 10000 connections of a flood were served", served)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "uid=4711 connections=1") {
		t.Errorf("the log of a flood: %s", text)
	}
	d.limits.Free = func(uid uint32) bool { return uid == 0 }
	for range 10_000 {
		if !d.enter(0) {
			t.Fatal("root is dropped")
		}
	}
}

// TestClosedConnections: one that its caller has closed is dropped, and no longer counted.
func TestClosedConnections(t *testing.T) {
	d, dial := knock(t, io.Discard)
	for range 3 {
		dial().Close()
	}
	dial()
	conn, err := d.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if peer.HungUp(conn.(*Connection).UnixConn) {
		t.Error("a closed connection was accepted")
	}
	if open := d.shares.Open(uint32(os.Getuid())); open != 1 {
		t.Errorf("%d connections are counted", open)
	}
}
