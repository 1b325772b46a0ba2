package uplink

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/sleep"
)

// errRenewed ends a session that was made with the certificate before.
var errRenewed = errors.New("the certificate was renewed")

// session is one connection to a server: a whole report, then polls and reports side by side, until one of them fails.
type session struct {
	*Link
	caller *caller
	taken  atomic.Int64 // revision of the list that the host took over last

	facts [sha256.Size]byte            // of the last that the server has
	known map[string][sha256.Size]byte // by VM: of the last that the server has
	next  time.Duration                // until a report without news
	clock bool                         // it was said that this host's clock is off
}

// debounce gathers changes that come together, as the states of a VM that starts, into one report.
const debounce = 100 * time.Millisecond

// session returns when the link is lost; worked reports whether it was there at all.
func (l *Link) session(ctx context.Context) (worked bool, err error) {
	_, c := l.present()
	s := &session{Link: l, caller: c, next: time.Minute}
	s.taken.Store(l.taken)
	defer func() { l.taken = s.taken.Load() }()
	defer c.close()
	if err := s.renew(ctx); err != nil {
		return false, err
	}
	_, changed := s.host.Observed()
	if err := s.report(ctx, true); err != nil {
		return false, err
	}
	s.well(c.server())
	life := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- s.reports(ctx, changed)
	}()
	var beside sync.WaitGroup
	beside.Go(func() { s.bringUsage(ctx) })
	beside.Go(func() { s.reportJobs(ctx) })
	err = s.polls(ctx, life)
	cancel()
	beside.Wait()
	if other := <-ended; other != nil && !errors.Is(other, context.Canceled) {
		err = other
	}
	return true, err
}

// polls brings the wanted list to the host each time that it is another one. What the host has from before counts as
// nothing: the first poll of a session brings the list. Streams live as long as life.
func (s *session) polls(ctx, life context.Context) error {
	after := int64(0)
	for {
		var list fleet.WantedList
		route := fleet.RouteWanted + "?after=" + strconv.FormatInt(after, 10) + "&instance=" + s.instance
		status, err := s.ask(ctx, pollTime, http.MethodGet, route, nil, &list)
		if err != nil {
			return err
		}
		pause := time.Duration(0)
		if status != http.StatusNoContent {
			if s.images != nil { // first: a VM of the list may be of an image that the catalogue has
				s.images.Want(list.Catalogue, list.Images)
			}
			s.host.Want(list)
			after = list.Revision
			s.taken.Store(after)
			s.setSpread(list.Spread)
			s.streams.open(life, s.Link, list.Streams)
			pause = seconds(list.Next)
		}
		_ = sleep.For(ctx, pause)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// reports sends the server what changed, soon, and all of it once in a while.
func (s *session) reports(ctx context.Context, changed <-chan struct{}) error {
	for {
		timer := time.NewTimer(jitter(s.next))
		whole := false
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
			whole = true
		case <-changed:
			timer.Stop()
			_ = sleep.For(ctx, debounce)
		}
		if err := s.renew(ctx); err != nil {
			return err
		}
		_, changed = s.host.Observed()
		if err := s.report(ctx, whole); err != nil {
			return err
		}
	}
}

// report sends what the server does not have; whole says all VMs. The first of a session is whole, and has the facts.
// It is sent again, once, when the answer or refusal tells that the server is of another release than was thought.
func (s *session) report(ctx context.Context, whole bool) error {
	said := s.caller.capability()
	err := s.reportOnce(ctx, whole)
	if s.caller.capability() != said {
		err = s.reportOnce(ctx, whole)
	}
	return err
}

func (s *session) reportOnce(ctx context.Context, whole bool) error {
	facts, err := s.host.Facts(ctx)
	if err != nil {
		return fmt.Errorf("reading this host's facts: %w", err)
	}
	if s.instance == "" { // the first report, before the polls that read it
		s.instance = facts.Instance
	}
	id, _ := s.present()
	facts.Trusts = id.trusts()
	facts.Capability = s.caller.capability()
	r := fleet.Report{Instance: facts.Instance, Wanted: s.taken.Load(), Whole: whole}
	now := facts.Now
	facts.Now = time.Time{}
	sum := sumOf(facts)
	if facts.Now = now; sum != s.facts {
		r.Facts = &facts
	}
	vms, _ := s.host.Observed()
	known := make(map[string][sha256.Size]byte, len(vms))
	for _, v := range vms {
		known[v.ID] = sumOf(v)
		if whole || known[v.ID] != s.known[v.ID] {
			r.VMs = append(r.VMs, v)
		}
	}
	if r.Facts == nil && len(r.VMs) == 0 && !whole {
		return nil
	}
	var a fleet.ReportAnswer
	if _, err := s.ask(ctx, answerTime, http.MethodPost, fleet.RouteReport, r, &a); err != nil {
		return err
	}
	s.facts, s.known = sum, known
	s.paced(a)
	if a.Renew {
		if err := s.renewNow(ctx); err != nil {
			return err
		}
	}
	return s.trust(a.CA)
}

func (s *session) paced(a fleet.ReportAnswer) {
	if a.Next > 0 {
		s.next = max(seconds(a.Next), time.Second)
	}
	s.setSpread(a.Spread)
	if off := a.Clock != 0; off != s.clock {
		s.clock = off
		if off {
			s.log.Warn("this host's clock is off", "ahead_of_server", seconds(a.Clock).Round(time.Millisecond))
		}
	}
}

func (l *Link) setSpread(s float64) {
	if s > 0 {
		l.mu.Lock()
		l.spread = min(seconds(s), slowBackOff)
		l.mu.Unlock()
	}
}

// ask is caller.call with a bound in time.
func (s *session) ask(ctx context.Context, bound time.Duration, method, route string, body, out any) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	return s.caller.call(ctx, method, route, body, out)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// sumOf reports whether something is as it was: far smaller than what it is of.
func sumOf(v any) [sha256.Size]byte {
	text, err := json.Marshal(v)
	if err != nil { // plain data
		panic(err)
	}
	return sha256.Sum256(text)
}
