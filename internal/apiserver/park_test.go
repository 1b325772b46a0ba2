package apiserver

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/sim"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/waittest"
)

// caller is one connection of a host.
type caller struct {
	lab  *lab
	conn *tls.Conn
	in   *bufio.Reader
	host farm.Host
	fake *sim.Host
}

// joined is a host that has joined and reported.
func joined(l *lab, n int) *caller {
	l.t.Helper()
	key, err := pki.NewKey()
	csr, err2 := pki.NewRequest(key)
	cas, err3 := l.server.Links.Authorities(l.t.Context())
	if err := errors.Join(err, err2, err3); err != nil {
		l.t.Fatal(err)
	}
	c := &caller{lab: l, host: farm.Host{ID: api.NewID(), Name: fmt.Sprintf("wn-%d", n), Cell: "east",
		Enrolled: time.Now()}, fake: sim.NewHost(sim.HostOptions{Version: "test",
		Hardware: sim.Hardware{Sockets: 1, Cores: 2, Memory: 4 * farm.GiB}})}
	issued, err := cas.Present.IssueHost(c.host.ID, csr, time.Now())
	if err != nil {
		l.t.Fatal(err)
	}
	c.host.Serial, c.host.Expires = issued.Serial, issued.Expires
	l.update(func(tx *store.Tx) error { return tx.InsertHost(c.host) })
	pair, err := tls.X509KeyPair(issued.PEM, key)
	if err != nil {
		l.t.Fatal(err)
	}
	c.conn, err = tls.Dial("tcp", strings.TrimPrefix(l.url, "https://"),
		&tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { c.conn.Close() })
	c.in = bufio.NewReader(c.conn)
	facts, _ := c.fake.Facts(l.t.Context())
	text, err := json.Marshal(fleet.Report{Instance: facts.Instance, Facts: &facts, Whole: true})
	if err != nil {
		l.t.Fatal(err)
	}
	c.send(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: s\r\n%s: %d\r\nContent-Length: %d\r\n\r\n%s", fleet.RouteReport,
		fleet.CapabilityHeader, fleet.Capability, len(text), text))
	if status, body := c.answer(); status != http.StatusOK {
		l.t.Fatalf("report: %d %s", status, body)
	}
	return c
}

func (c *caller) send(text string) {
	c.lab.t.Helper()
	if _, err := io.WriteString(c.conn, text); err != nil {
		c.lab.t.Fatal(err)
	}
}

// poll asks for another list than that of a revision.
func (c *caller) poll(after int64) string {
	facts, _ := c.fake.Facts(c.lab.t.Context())
	return fmt.Sprintf("GET %s?after=%d&instance=%s HTTP/1.1\r\nHost: s\r\n%s: %d\r\n\r\n", fleet.RouteWanted, after,
		facts.Instance, fleet.CapabilityHeader, fleet.Capability)
}

func (c *caller) answer() (int, string) {
	c.lab.t.Helper()
	c.conn.SetReadDeadline(time.Now().Add(waittest.Limit))
	r, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.lab.t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Header.Get(fleet.CapabilityHeader) == "" || r.Header.Get("Cache-Control") != "no-store" {
		c.lab.t.Errorf("%v: %v", r.Header, err)
	}
	return r.StatusCode, string(body)
}

// list asks for the list that there is.
func (c *caller) list() fleet.WantedList {
	c.lab.t.Helper()
	c.send(c.poll(0))
	return c.told()
}

// told is the list that the host is sent.
func (c *caller) told() (list fleet.WantedList) {
	c.lab.t.Helper()
	status, body := c.answer()
	if err := json.Unmarshal([]byte(body), &list); err != nil || status != http.StatusOK {
		c.lab.t.Fatalf("%d %s", status, body)
	}
	return list
}

// park begins a poll that waits.
func (c *caller) park() *parked {
	c.lab.t.Helper()
	n := c.lab.parked()
	c.send(c.poll(c.list().Revision))
	c.lab.settle(len(n) + 1)
	for p := range c.lab.parked() {
		if _, before := n[p]; !before {
			return p
		}
	}
	c.lab.t.Fatal("nothing is parked")
	return nil
}

// parked are the polls that wait and that nobody has in hand.
func (l *lab) parked() map[*parked]struct{} {
	l.api.lot.mu.Lock()
	defer l.api.lot.mu.Unlock()
	out := map[*parked]struct{}{}
	for p := range l.api.lot.parked {
		if !p.held {
			out[p] = struct{}{}
		}
	}
	return out
}

// settle waits until so many polls wait.
func (l *lab) settle(n int) {
	l.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(waittest.Limit); len(l.parked()) != n; {
		select {
		case <-tick.C:
		case <-late:
			l.t.Fatalf("%d polls wait, want %d", len(l.parked()), n)
		}
	}
}

// close closes the host, which is a change of its list.
func (c *caller) close(closed bool) {
	c.lab.update(func(tx *store.Tx) error {
		h, err := tx.Host(c.host.ID)
		h.Closed = closed
		return errors.Join(err, tx.SetHost(h))
	})
}

// TestParkedPoll: a poll that waits is answered when the list changes, and its connection goes on as before, again and
// again.
func TestParkedPoll(t *testing.T) {
	l := newLab(t)
	c := joined(l, 1)
	for _, closed := range []bool{true, false, true} {
		c.park()
		c.close(closed)
		if got := c.told(); got.Closed != closed {
			t.Errorf("told %+v, want closed %v", got, closed)
		}
	}
	c.park()
	// another machine joined as this one: the connection is of the certificate before
	c.lab.update(func(tx *store.Tx) error {
		h, err := tx.Host(c.host.ID)
		h.Serial, h.Closed = "another", false
		return errors.Join(err, tx.SetHost(h))
	})
	c.told()
	c.send(c.poll(0))
	if status, body := c.answer(); status != http.StatusForbidden ||
		!strings.Contains(body, string(farm.CodeRevokedCert)) {
		t.Errorf("on a connection that was given back: %d %s", status, body)
	}
}

// TestParkedPollIsOver: a poll without news is answered so, and asked again on the same connection.
func TestParkedPollIsOver(t *testing.T) {
	l := newLab(t)
	c := joined(l, 1)
	for range 3 {
		c.park().timer.Reset(0)
		if status, body := c.answer(); status != http.StatusNoContent || body != "" {
			t.Errorf("%d %q", status, body)
		}
	}
	c.list()
}

// TestParkedPollOfNobody: a host that has gone leaves nothing behind.
func TestParkedPollOfNobody(t *testing.T) {
	l := newLab(t)
	gone, there := joined(l, 1), joined(l, 2)
	first := gone.park()
	there.park()
	gone.conn.NetConn().Close()
	first.timer.Reset(0)
	l.settle(1)
	there.close(true)
	there.told()
}

// TestParkedPollsTakeNoGoroutines: that is what parking is for.
func TestParkedPollsTakeNoGoroutines(t *testing.T) {
	const many = 30
	l := newLab(t)
	var all []*caller
	for n := range many {
		all = append(all, joined(l, n))
	}
	before := runtime.NumGoroutine() // one or two for each connection
	for _, c := range all {
		c.park()
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(waittest.Limit); runtime.NumGoroutine() > before-many+5; {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%d goroutines with %d polls, and %d before", runtime.NumGoroutine(), many, before)
		}
	}
	l.update(func(tx *store.Tx) error { return tx.PutSetting("hosts", []byte(`{"boot_timeout_seconds":300}`)) })
	for _, c := range all {
		c.told()
	}
}

// TestPollThatIsNotAlone: what a host sends before it is answered is not lost without a word: the connection is closed.
func TestPollThatIsNotAlone(t *testing.T) {
	c := joined(newLab(t), 1)
	p := c.poll(c.list().Revision)
	c.send(p + p)
	if status, _ := c.answer(); status != http.StatusNoContent {
		t.Errorf("%d", status)
	}
	if _, err := c.in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// TestParkedPollsEnd: a server that ends closes the connections of polls.
func TestParkedPollsEnd(t *testing.T) {
	l := newLab(t)
	c := joined(l, 1)
	c.park()
	l.stop()
	c.conn.SetReadDeadline(time.Now().Add(waittest.Limit))
	if _, err := c.in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}
