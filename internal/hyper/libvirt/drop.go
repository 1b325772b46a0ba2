package libvirt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	rpc "github.com/digitalocean/go-libvirt"

	"github.com/grange-project/grange/internal/hyper"
)

// A domain that libvirt does not let go answers each destroy after 30 seconds, with an error: an agent that was killed
// while libvirt started a machine, and libvirt with it, leaves one whose start is never over. So domains without a
// process are dropped by a goroutine of their own, on a connection of its own, one after the other: nobody waits for
// them, and they take none of the few requests that libvirt works on for each client.

// Pauses between attempts to drop the same domain.
const (
	dropFirst = 10 * time.Second
	dropLast  = 10 * time.Minute
)

// dropper has libvirt drop domains of ours that have no process.
type dropper struct {
	daemon   *daemon
	machines *machines
	queue    dropping
}

// dropping is what is to be dropped.
type dropping struct {
	mu      sync.Mutex
	domains map[rpc.UUID]*dropped
	wake    chan struct{}
	running bool // the goroutine
}

type dropped struct {
	domain   rpc.Domain
	since    time.Time
	attempts int
	reason   string // of the last attempt
	next     time.Time
}

func newDropping() dropping {
	return dropping{domains: map[rpc.UUID]*dropped{}, wake: make(chan struct{}, 1)}
}

// stuck lists what was tried in vain.
func (q *dropping) stuck() []hyper.Stuck {
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []hyper.Stuck
	for id, d := range q.domains {
		if d.reason != "" {
			all = append(all, hyper.Stuck{ID: formatUUID(id), Name: d.domain.Name, Reason: d.reason, Since: d.since,
				Attempts: d.attempts})
		}
	}
	slices.SortFunc(all, func(x, y hyper.Stuck) int { return strings.Compare(x.Name, y.Name) })
	return all
}

// replace takes over what libvirt lists now: what it lists no more is gone.
func (q *dropping) replace(domains []rpc.Domain) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, listed := time.Now(), map[rpc.UUID]*dropped{}
	for _, d := range domains {
		old := q.domains[d.UUID]
		if old == nil {
			old = &dropped{since: now}
		}
		old.domain = d
		listed[d.UUID] = old
	}
	q.domains = listed
}

// next returns the domain whose turn it is, or how long until then; the time is negative when there is none at all.
func (q *dropping) next(now time.Time) (*dropped, time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var first *dropped
	for _, d := range q.domains {
		if first == nil || d.next.Before(first.next) || d.next.Equal(first.next) && d.domain.Name < first.domain.Name {
			first = d
		}
	}
	switch {
	case first == nil:
		return nil, -1
	case first.next.After(now):
		return nil, first.next.Sub(now)
	}
	return first, 0
}

// errNotTried is the error while libvirt cannot be connected to.
var errNotTried = errors.New("libvirt does not answer")

// tried notes how an attempt ended. A domain that is gone, or is not ours, is not tried again until it is listed anew.
func (q *dropping) tried(d *dropped, now time.Time, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case err == nil:
		delete(q.domains, d.domain.UUID)
		return
	case errors.Is(err, errNotTried):
		d.next = now.Add(dropFirst)
		return
	}
	d.attempts++
	d.reason = err.Error()
	d.next = now.Add(min(dropFirst<<min(d.attempts-1, 10), dropLast))
}

// drop has libvirt drop domains, all that are to be dropped, and returns at once.
func (r *dropper) drop(domains []rpc.Domain) {
	q := &r.queue
	q.replace(domains)
	q.mu.Lock()
	begin := len(q.domains) > 0 && !q.running
	q.running = q.running || begin
	q.mu.Unlock()
	if begin {
		r.daemon.start(r.dropAll)
		return
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// dropAll tries until the hypervisor is closed.
func (r *dropper) dropAll() {
	for {
		d, wait := r.queue.next(time.Now())
		if d != nil {
			err := r.dropOne(d.domain)
			if isClosed(r.daemon.closing) {
				return
			}
			r.queue.tried(d, time.Now(), err)
			continue
		}
		timer := time.NewTimer(wait)
		if wait < 0 {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-r.queue.wake:
		case <-r.daemon.closing:
		}
		timer.Stop()
		if isClosed(r.daemon.closing) {
			return
		}
	}
}

// dropOne has libvirt end a domain if it is ours and has no process. nil: there is nothing left to do.
func (r *dropper) dropOne(d rpc.Domain) error {
	s, err := r.daemon.connect()
	if err != nil {
		return errNotTried
	}
	defer s.conn.Close()
	_, err = within(r.daemon, s, callTimeout, "destroy",
		func() (struct{}, error) { return struct{}{}, r.dropIfEmpty(s, d) })
	answer := new(rpc.Error)
	if errors.As(err, answer) {
		switch rpc.ErrorNumber(answer.Code) {
		case rpc.ErrNoDomain, rpc.ErrOperationInvalid, rpc.ErrOperationFailed: // it ends at this moment
			return nil
		}
		return fmt.Errorf("libvirt does not drop it: %s", answer.Message)
	}
	return err
}
