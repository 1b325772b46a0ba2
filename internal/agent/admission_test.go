package agent

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/admission"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/peer"
	"github.com/grange-project/grange/internal/procstat"
	"github.com/grange-project/grange/internal/throttle"
)

// knock opens the door of an agent for whom nobody is an administrator, on a socket of its own.
func knock(t *testing.T, a *Agent) (door, func() net.Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	d := a.newDoor(l.(*net.UnixListener))
	d.free = func(uint32) bool { return false }
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
	a := testAgent(t, testShapes)
	d, dial := knock(t, a)
	var held []net.Conn
	for range a.mostConnections() {
		dial()
		conn, err := d.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if start, err := procstat.Started(os.Getpid()); err != nil || conn.(*connection).start != start {
			t.Fatalf("the caller started at %d, not %d: %v", start, conn.(*connection).start, err)
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
	if a.admission.Enter(held[0].(*connection).mustUID(t), a.mostConnections()) {
		t.Error("a connection that was closed twice counts twice")
	}
	if !a.admission.Enter(4711, a.mostConnections()) {
		t.Error("another user's connections count")
	}
	a.admission.Leave(4711)
}

func (c *connection) mustUID(t *testing.T) uint32 {
	cred, err := peer.Cred(c.UnixConn)
	if err != nil {
		t.Fatal(err)
	}
	return cred.Uid
}

func TestJobsOfAUser(t *testing.T) {
	a := testAgent(t, testShapes)
	user, other := Caller{UID: 4711}, Caller{UID: 4712}
	for range a.mostJobs() {
		if err := a.roomForLocked(newJob(a, api.NewID(), user), a.mostJobs()); err != nil {
			t.Fatal(err)
		}
		j := newJob(a, api.NewID(), user)
		a.live[j.id] = j
	}
	late := newJob(a, api.NewID(), user)
	if entered, err := a.enter(nil, late); entered || !farm.IsCode(err, farm.CodeTooManyJobs) ||
		!farm.IsKind(err, farm.NoCapacity) {
		t.Errorf("one too many: %v, %v", entered, err)
	}
	for _, c := range []Caller{other, {}} { // root has no limit, and the agent's own tests may run as anybody
		if err := a.roomForLocked(newJob(a, api.NewID(), c), a.mostJobs()); err != nil {
			t.Errorf("user %d: %v", c.UID, err)
		}
	}
}

// TestBodies: a user's large bodies come one by one, and none may take for ever.
func TestBodies(t *testing.T) {
	defer func(d time.Duration) { bodyTime = d }(bodyTime)
	bodyTime = 300 * time.Millisecond
	a := testAgent(t, testShapes)
	arrived := make(chan error, 3)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var text string
		err := routes{a}.decode(w, r, Caller{UID: 4711}, &text)
		arrived <- err
		if err == nil {
			<-r.Context().Done() // as long as a job: the time limit is over by then
			arrived <- r.Context().Err()
		}
	}))
	defer server.Close()
	send := func(head, body string) net.Conn {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\n"+head+"\r\n\r\n"+body)
		return c
	}
	began := time.Now()
	slow := send("Content-Length: 2000000", `"x`)
	defer slow.Close()
	if err := <-arrived; !farm.IsCode(err, CodeSlowRequest) || !farm.IsKind(err, farm.Unavailable) ||
		time.Since(began) < bodyTime {
		t.Errorf("a body that does not come: %v after %v", err, time.Since(began))
	}

	done, err := a.admission.Carry(t.Context(), 4711)
	if err != nil {
		t.Fatal(err)
	}
	large := send("Content-Length: 2000002", `"`+strings.Repeat("x", 2000000)+`"`)
	small := send("Content-Length: 3", `"x"`)
	if err := <-arrived; err != nil {
		t.Errorf("a small one beside a large one: %v", err)
	}
	time.Sleep(2 * bodyTime)
	select {
	case err := <-arrived:
		t.Errorf("a second large one did not wait, or the time limit outlives its body: %v", err)
	default:
	}
	small.Close()
	<-arrived // its end is noticed
	done()
	if err := <-arrived; err != nil {
		t.Errorf("the large one, in its turn: %v", err)
	}
	large.Close()
	<-arrived
}

// TestAgentThatCannotAccept is not reachable until it was again for as long as callers may be silent.
func TestAgentThatCannotAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d admission.Shares
		for range 60 {
			d.Note(time.Now())
			time.Sleep(time.Second)
			if d.Reachable() {
				t.Fatal("an agent without descriptors is reachable")
			}
		}
		time.Sleep(machine.HeartbeatTimeout + 2*time.Second)
		if !d.Reachable() {
			t.Error("it could be heard again, and is not")
		}
		d.Note(time.Now())
		time.Sleep(time.Second)
		if d.Reachable() {
			t.Error("an agent is reachable that is without descriptors again")
		}
	})
}

// TestFloodOfConnections: a user that connects without end is dropped unread, and logged; root is served.
func TestFloodOfConnections(t *testing.T) {
	a := testAgent(t, testShapes)
	var log strings.Builder
	a.log = slog.New(slog.NewTextHandler(&log, nil))
	d, _ := knock(t, a)
	now := time.Now()
	d.arrivals = throttle.NewArrivals(1, func() time.Time { return now })
	served := 0
	for range 10_000 {
		if d.enter(4711) {
			served++
			a.admission.Leave(4711)
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
	d.free = func(uid uint32) bool { return uid == 0 }
	for range 10_000 {
		if !d.enter(0) {
			t.Fatal("root is dropped")
		}
	}
}

// TestClosedConnections: one that its caller has closed is dropped, and no longer counted.
func TestClosedConnections(t *testing.T) {
	a := testAgent(t, testShapes)
	d, dial := knock(t, a)
	for range 3 {
		dial().Close()
	}
	dial()
	conn, err := d.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if peer.HungUp(conn.(*connection).UnixConn) {
		t.Error("a closed connection was accepted")
	}
	if open := a.admission.Open(uint32(os.Getuid())); open != 1 {
		t.Errorf("%d connections are counted", open)
	}
}
