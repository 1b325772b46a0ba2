package libvirt

import (
	"context"
	"strings"
	"time"

	rpc "github.com/digitalocean/go-libvirt"

	"github.com/grange-project/grange/internal/hyper"
)

// watcher holds what one reader of Events has not read yet: at most one event for each machine, the newest, so a slow reader costs nothing.
type watcher struct {
	order []string
	news  map[string]hyper.Event
	wake  chan struct{}
}

// published takes one event from libvirt. It never blocks, for a slow reader stops the whole connection.
func (l *Libvirt) published(e rpc.DomainEventLifecycleMsg) {
	if !strings.HasPrefix(e.Dom.Name, namePrefix) {
		return
	}
	id := formatUUID(e.Dom.UUID)
	event := hyper.Event{ID: id}
	switch rpc.DomainEventType(e.Event) {
	case rpc.DomainEventSuspended:
		if rpc.DomainEventSuspendedDetailType(e.Detail) != rpc.DomainEventSuspendedIoerror {
			return
		}
		event.NoSpace, event.Reason = true, noSpace // domain.go has all other errors of disks go to the guest
	case rpc.DomainEventStopped:
		event.End, event.Reason = stopReason(e.Detail)
	case rpc.DomainEventCrashed:
		event.End, event.Reason = hyper.Failed, crashed
	default:
		return
	}
	l.publish(event)
}

func (l *Libvirt) publish(event hyper.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.watchers {
		if _, ok := w.news[event.ID]; !ok {
			w.order = append(w.order, event.ID)
		}
		w.news[event.ID] = event
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

const (
	crashed = "the guest crashed"
	noSpace = "no space is left on the host for what its guest writes to a disk"
)

// publishStill tells of machines that stand still for want of space: libvirt tells once, perhaps of a time when nobody listened.
func (l *Libvirt) publishStill(ctx context.Context) {
	type reply struct{ state, reason int32 }
	paused, err := call(ctx, l, func(s *session) ([]rpc.Domain, error) {
		d, _, err := s.ConnectListAllDomains(1, rpc.ConnectListDomainsPaused)
		return d, err
	})
	if err != nil {
		return // the next connection tries again
	}
	for _, d := range paused {
		if !strings.HasPrefix(d.Name, namePrefix) {
			continue
		}
		r, err := call(ctx, l, func(s *session) (reply, error) {
			state, reason, err := s.DomainGetState(d, 0)
			return reply{state, reason}, err
		})
		if err == nil && rpc.DomainState(r.state) == rpc.DomainPaused && rpc.DomainPausedReason(r.reason) == rpc.DomainPausedIoerror {
			l.publish(hyper.Event{ID: formatUUID(d.UUID), NoSpace: true, Reason: noSpace})
		}
	}
}

func stopReason(detail int32) (hyper.End, string) {
	switch rpc.DomainEventStoppedDetailType(detail) {
	case rpc.DomainEventStoppedShutdown:
		return hyper.PoweredOff, "the guest powered off"
	case rpc.DomainEventStoppedDestroyed:
		return hyper.Failed, "it was stopped"
	case rpc.DomainEventStoppedCrashed:
		return hyper.Failed, crashed
	case rpc.DomainEventStoppedFailed:
		return hyper.Failed, "its QEMU process failed or was killed"
	}
	return "", "it ended"
}

// Events keeps the connection alive, with a growing pause between attempts, for as long as ctx lasts. The channel is closed
// when ctx ends or the hypervisor is closed.
func (l *Libvirt) Events(ctx context.Context) <-chan hyper.Event {
	w := &watcher{news: map[string]hyper.Event{}, wake: make(chan struct{}, 1)}
	l.mu.Lock()
	l.watchers[w] = struct{}{}
	l.mu.Unlock()
	out := make(chan hyper.Event)
	l.running.Add(2)
	go func() {
		defer l.running.Done()
		l.stayConnected(ctx)
	}()
	go func() {
		defer l.running.Done()
		defer close(out)
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.watchers, w)
		}()
		for {
			e, ok := l.next(w)
			if !ok {
				select {
				case <-w.wake:
				case <-ctx.Done():
					return
				case <-l.closing:
					return
				}
				continue
			}
			select {
			case out <- e:
			case <-ctx.Done():
				return
			case <-l.closing:
				return
			}
		}
	}()
	return out
}

func (l *Libvirt) next(w *watcher) (hyper.Event, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(w.order) == 0 {
		return hyper.Event{}, false
	}
	id := w.order[0]
	e := w.news[id]
	w.order = w.order[1:]
	delete(w.news, id)
	return e, true
}

func (l *Libvirt) stayConnected(ctx context.Context) {
	const first, last = 50 * time.Millisecond, 2 * time.Second
	pause := first
	for {
		s, err := l.session(ctx)
		var lost, retired <-chan struct{}
		timer := time.NewTimer(pause)
		if err == nil {
			lost, retired, pause = s.ended, s.retired, first
			timer.Stop()
			l.publishStill(ctx)
		} else if pause *= 2; pause > last {
			pause = last
		}
		select {
		case <-lost:
		case <-retired:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		case <-l.closing:
			timer.Stop()
			return
		}
	}
}
