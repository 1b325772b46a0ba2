package apiserver

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/server/hostlink"
)

// answersAtOnce bounds the goroutines that answer polls, when one change concerns all hosts.
const answersAtOnce = 32

// lot is where polls wait that have nothing to be told yet. Each is a connection taken from net/http, whose goroutines,
// stacks and buffers are given back: they are most of what a waiting host takes. When there is an answer it is written
// here, and net/http gets the connection back as if it were a new one; to it the lot is a listener. That a host has
// gone is seen when it is answered, and a poll is short. ADR 37 says what that saves.
type lot struct {
	api  *API
	back chan net.Conn

	mu      sync.Mutex
	ended   bool
	closed  chan struct{}
	parked  map[*parked]struct{} // those that are answered right now too
	ready   []*parked
	workers int
	working sync.WaitGroup
}

// parked is one poll. Who holds it may use conn and poll; the rest is below the lot's lock.
type parked struct {
	conn  *tls.Conn
	poll  *hostlink.Poll
	timer *time.Timer
	held  bool // in lot.ready, or in somebody's hands
	woken bool // meanwhile
	over  bool // it lasted as long as it may
}

func newLot(a *API) *lot {
	return &lot{api: a, back: make(chan net.Conn), closed: make(chan struct{}), parked: map[*parked]struct{}{}}
}

// parkKey marks connections that Serve can take back.
type parkKey struct{}

// parkable reports whether a request's connection can be taken from net/http and given back after the answer.
func parkable(r *http.Request) bool {
	can, _ := r.Context().Value(parkKey{}).(bool)
	return can && r.TLS != nil && r.ProtoMajor == 1 && r.ProtoMinor == 1 && !r.Close
}

// poll answers at once where there is something to tell, and parks the connection otherwise.
func (l *lot) poll(w http.ResponseWriter, r *http.Request, instance string, after int64) {
	p, err := l.api.server.Links.Poll(callerOf(r.Context()), instance, after)
	for err == nil && p.Due() {
		list, changed, failed := p.Look(r.Context())
		if err = failed; changed {
			l.api.hosts.answerHost(w, r, list, nil)
			return
		}
	}
	if err != nil {
		l.api.hosts.answerHost(w, r, nil, err)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		l.api.hosts.answerHost(w, r, nil, err)
		return
	}
	secure, ok := conn.(*tls.Conn)
	// who asks more before this is answered cannot be given back: what was read would be lost
	if !ok || buffered.Reader.Buffered() > 0 {
		a := newAnswer()
		a.header.Set("Connection", "close")
		a.WriteHeader(http.StatusNoContent)
		a.send(conn)
		conn.Close()
		return
	}
	l.park(&parked{conn: secure, poll: p})
}

// park keeps a connection until its poll is answered.
func (l *lot) park(p *parked) {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		p.conn.Close()
		return
	}
	l.parked[p] = struct{}{}
	p.held = true
	p.timer = time.AfterFunc(p.poll.Lasts(), func() { l.wake(p, true) })
	l.mu.Unlock()
	l.rest(p)
}

// rest lets go of a poll until it is woken.
func (l *lot) rest(p *parked) {
	p.poll.Await(func() { l.wake(p, false) })
	l.mu.Lock()
	defer l.mu.Unlock()
	p.held = false
	if p.woken {
		l.enqueue(p)
	}
}

// wake has a poll looked at.
func (l *lot) wake(p *parked, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.over = p.over || over
	if p.woken = true; !p.held {
		l.enqueue(p)
	}
}

// enqueue gives a poll to the next worker. The lot is locked.
func (l *lot) enqueue(p *parked) {
	if l.ended {
		return
	}
	p.held, p.woken = true, false
	l.ready = append(l.ready, p)
	if l.workers < answersAtOnce {
		l.workers++
		l.working.Go(l.work)
	}
}

// work looks at polls until none is left that was woken.
func (l *lot) work() {
	for {
		l.mu.Lock()
		if len(l.ready) == 0 || l.ended {
			l.ready = nil
			l.workers--
			l.mu.Unlock()
			return
		}
		p := l.ready[0]
		l.ready[0], l.ready = nil, l.ready[1:]
		over := p.over
		l.mu.Unlock()
		l.look(p, over)
	}
}

// look answers a poll that changed, failed, or is over. Another one waits on.
func (l *lot) look(p *parked, over bool) {
	var list fleet.WantedList
	var changed bool
	var err error
	if p.poll.Due() {
		list, changed, err = p.poll.Look(l.api.ending)
	}
	switch {
	case changed || err != nil:
		request := (&http.Request{Pattern: fleet.RouteWanted}).WithContext(l.api.ending)
		l.answer(p, func(a *answer) { l.api.hosts.answerHost(a, request, list, err) })
	case over:
		l.answer(p, func(a *answer) { a.WriteHeader(http.StatusNoContent) })
	default:
		l.rest(p)
	}
}

// answer writes an answer and gives the connection back, or closes it where the host has gone.
func (l *lot) answer(p *parked, write func(*answer)) {
	p.timer.Stop()
	p.poll.Leave()
	a := newAnswer()
	write(a)
	err := a.send(p.conn)
	l.mu.Lock()
	delete(l.parked, p)
	l.mu.Unlock()
	if err != nil {
		l.api.log.Debug("answer to a host", "error", err)
		p.conn.Close()
		return
	}
	select {
	case l.back <- p.conn:
	case <-l.closed:
		p.conn.Close()
	}
}

// Accept gives a connection back to net/http.
func (l *lot) Accept() (net.Conn, error) {
	select {
	case c := <-l.back:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Addr is nobody's address: nobody can connect to a lot.
func (l *lot) Addr() net.Addr { return &net.UnixAddr{Name: "polls", Net: "unix"} }

// Close closes all that is parked: hosts ask again, another server or this one when it is back.
func (l *lot) Close() error {
	l.mu.Lock()
	all := l.parked
	if !l.ended {
		close(l.closed)
	}
	l.ended, l.parked = true, nil
	l.mu.Unlock()
	for p := range all {
		p.timer.Stop()
		p.conn.Close()
	}
	return nil
}

// end closes the lot and waits for its goroutines.
func (l *lot) end() {
	l.Close()
	l.working.Wait()
}

// answer is an http.ResponseWriter that keeps an answer until it is sent.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newAnswer() *answer {
	a := &answer{header: http.Header{}, status: http.StatusOK}
	setCommon(a.header)
	a.header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	return a
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

// send writes the answer as HTTP/1.1, at once: a record of TLS for each piece would cost more than the copy.
func (a *answer) send(conn net.Conn) error {
	r := http.Response{StatusCode: a.status, ProtoMajor: 1, ProtoMinor: 1, Header: a.header,
		ContentLength: int64(a.body.Len()), Body: io.NopCloser(&a.body)}
	var text bytes.Buffer
	if err := r.Write(&text); err != nil {
		return err
	}
	conn.SetWriteDeadline(time.Now().Add(writeTime))
	if _, err := conn.Write(text.Bytes()); err != nil {
		return err
	}
	return conn.SetWriteDeadline(time.Time{})
}

// waiting is how many polls are parked.
func (l *lot) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.parked)
}
