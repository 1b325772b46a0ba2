package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/waittest"
)

// accepted are the connections that a bounded listener has accepted.
func accepted(t *testing.T, l net.Listener) <-chan *connection {
	t.Helper()
	all := make(chan *connection, 100)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				close(all)
				return
			}
			all <- conn.(*connection)
		}
	}()
	t.Cleanup(func() { l.Close() })
	return all
}

func dialled(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func listening(t *testing.T, most, unknown int, graceful time.Duration) *boundedListener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newBounded(l, most, unknown, graceful)
}

// TestUnknownConnectionsMakeRoom: of those that show nobody the oldest goes; those whose caller is known stay.
func TestUnknownConnectionsMakeRoom(t *testing.T) {
	l := listening(t, 100, 3, time.Millisecond)
	all := accepted(t, l)
	first := dialled(t, l)
	if err := (<-all).isOf("host wn1"); err != nil {
		t.Fatal(err)
	}
	var idle []net.Conn
	for range 10 {
		idle = append(idle, dialled(t, l))
		<-all
	}
	idle[0].SetReadDeadline(time.Now().Add(waittest.Limit))
	if _, err := idle[0].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the oldest that showed nobody: %v", err)
	}
	first.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := first.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
		t.Error("a host's connection was closed")
	}
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	if l.all.waiting != 3 || l.all.open != 4 || l.all.of["host wn1"] != 1 {
		t.Errorf("%d without a caller, %d open, %v", l.all.waiting, l.all.open, l.all.of)
	}
}

// TestTheBusiestAddressMakesRoom: an address with few connections keeps them.
func TestTheBusiestAddressMakesRoom(t *testing.T) {
	a := listening(t, 100, 3, 0).all
	long := time.Now().Add(-time.Hour)
	for i, party := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.2"} {
		if wait, oldest := a.enter(&connection{all: a, party: party,
			accepted: long.Add(time.Duration(i))}); wait != 0 || oldest != nil {
			t.Fatalf("%d: %v, %v", i, wait, oldest)
		}
	}
	if _, oldest := a.enter(&connection{all: a, party: "192.0.2.3"}); oldest == nil || oldest.party != "192.0.2.2" ||
		oldest.accepted != long.Add(1) {
		t.Errorf("to be closed: %+v", oldest)
	}
	a.graceful = 2 * time.Hour
	if wait, oldest := a.enter(&connection{all: a, party: "192.0.2.3"}); oldest != nil || wait <= 0 {
		t.Errorf("%v, %+v", wait, oldest)
	}
}

// TestConnectionsOfOneCaller: there are many, but not without a bound, and what is closed counts no more.
func TestConnectionsOfOneCaller(t *testing.T) {
	a := listening(t, 10_000, 5000, 0).all
	var those []*connection
	for range maxOfOne {
		here, there := net.Pipe()
		t.Cleanup(func() { there.Close() })
		c := &connection{Conn: here, all: a, party: "192.0.2.1"}
		a.enter(c)
		if err := errors.Join(c.isOf("user ann"), c.isOf("user ann")); err != nil {
			t.Fatal(err)
		}
		those = append(those, c)
	}
	one := &connection{all: a, party: "192.0.2.1"}
	a.enter(one)
	if err := one.isOf("user ann"); !farm.IsCode(err, farm.CodeConnections) {
		t.Errorf("%d connections: %v", maxOfOne+1, err)
	}
	if err := one.isOf("user bob"); err != nil {
		t.Error(err)
	}
	for _, c := range those {
		c.Close()
		c.Close()
	}
	if a.open != 1 || len(a.of) != 1 || a.waiting != 0 {
		t.Errorf("%d open, %v, %d without a caller", a.open, a.of, a.waiting)
	}
}

// TestWatchesOfOneUser: one too many is refused, and there is room again after one has ended.
func TestWatchesOfOneUser(t *testing.T) {
	s := newShares()
	ann := farm.Identity{User: "ann"}
	var leave func()
	for range maxWatches {
		var err error
		if leave, err = s.watch(ann); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.watch(ann); !farm.IsCode(err, farm.CodeConnections) {
		t.Errorf("one more: %v", err)
	}
	for _, who := range []farm.Identity{{User: "bob"}, {User: "root", Root: true}} {
		if _, err := s.watch(who); err != nil {
			t.Errorf("%s: %v", who.User, err)
		}
	}
	leave()
	leave()
	if _, err := s.watch(ann); err != nil {
		t.Errorf("after one had ended: %v", err)
	}
	if _, err := s.watch(ann); err == nil {
		t.Error("one that ended twice made room for two")
	}
}

// TestWalks: a user waits for its own, and nothing stays of those who go away while they wait.
func TestWalks(t *testing.T) {
	s := newShares()
	var leaves []func()
	for i := range maxWalks {
		leave, err := s.walk(t.Context(), farm.Identity{User: fmt.Sprint("user-", i)})
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	for _, user := range []string{"user-0", "another"} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := s.walk(ctx, farm.Identity{User: user}); err == nil {
			t.Errorf("%s walks, too", user)
		}
		cancel()
	}
	if _, err := s.walk(t.Context(), farm.Identity{Root: true}); err != nil {
		t.Error("root waits:", err)
	}
	for _, leave := range leaves {
		leave()
	}
	leave, err := s.walk(t.Context(), farm.Identity{User: "another"})
	if err != nil {
		t.Fatal(err)
	}
	leave()
}

// TestListsInTurn: while a user reads something whole, its other requests for such wait, and no one else's.
func TestListsInTurn(t *testing.T) {
	l := newLab(t)
	leave, err := l.api.shares.walk(t.Context(), farm.Identity{User: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	whole := []string{"/v1/groups", "/v1/security-groups", "/v1/hosts", "/v1/images", "/v1/tokens", "/v1/sessions",
		"/v1/cells", "/v1/projects", "/v1/shapes", "/v1/networks", "/v1/file-systems", "/v1/join-tokens", "/v1/status",
		"/v1/findings", "/v1/usage", "/v1/usage/records", "/v1/jobs", "/v1/jobs/active", "/v1/vms?name=x*",
		"/v1/vms?tag=x", "/v1/vms?state=running"}
	_, body := l.ask("POST", "/v1/tokens", `{"user": "ann"}`)
	var token fleet.Token
	if err := json.Unmarshal([]byte(body), &token); err != nil {
		t.Fatal(err, body)
	}
	get := func(path string) (status int, waits bool) {
		answered := make(chan int, 1)
		go func() {
			answer, _ := l.ask("GET", path, "", "Authorization", "Bearer "+token.Secret)
			answered <- answer.StatusCode
		}()
		select {
		case status := <-answered:
			return status, false
		case <-time.After(50 * time.Millisecond):
		}
		leave()
		status = <-answered
		if leave, err = l.api.shares.walk(t.Context(), farm.Identity{User: "ann"}); err != nil {
			t.Fatal(err)
		}
		return status, true
	}
	for _, path := range whole {
		if status, waits := get(path); !waits || status >= 500 {
			t.Errorf("%s: %d; it waits for another one of the user: %v", path, status, waits)
		}
	}
	answer, body := l.ask("GET", "/v1/vms?project=alice", "", "Authorization", "Bearer "+token.Secret)
	if answer.StatusCode != http.StatusOK {
		t.Error("a page of VMs: ", body)
	}
	if answer, body := l.ask("GET", "/v1/groups", ""); answer.StatusCode != http.StatusOK {
		t.Error("root: ", body)
	}
}

// TestConnectionsAreCounted: by who calls on them.
func TestConnectionsAreCounted(t *testing.T) {
	l := newLab(t)
	for name, c := range map[string]*fleet.Client{"ann": l.ann(), "root": l.root()} {
		if _, err := c.Whoami(t.Context()); err != nil {
			t.Fatal(name, err)
		}
	}
	b := l.bounds
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of["user ann"] != 1 || b.waiting != 0 || b.open != 1 {
		t.Errorf("%v, %d without a caller, %d open", b.of, b.waiting, b.open)
	}
}
