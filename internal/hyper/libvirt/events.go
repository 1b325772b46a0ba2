package libvirt

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	rpc "github.com/digitalocean/go-libvirt"

	"github.com/grange-project/grange/internal/hyper"
)

// watcher holds what one reader of Events has not read yet: at most one event of a kind for each machine, the newest,
// so a slow reader costs nothing.
type watcher struct {
	order []hyper.Event // without End and Reason
	news  map[hyper.Event]hyper.Event
	wake  chan struct{}
}

// add takes an event, and drops an older one of its kind.
func (w *watcher) add(event hyper.Event) {
	kind := event
	kind.End, kind.Reason = "", ""
	w.order = append(slices.DeleteFunc(w.order, func(k hyper.Event) bool { return k == kind }), kind)
	w.news[kind] = event
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// next returns the event that has waited longest.
func (w *watcher) next() (hyper.Event, bool) {
	if len(w.order) == 0 {
		return hyper.Event{}, false
	}
	kind := w.order[0]
	event := w.news[kind]
	w.order = w.order[1:]
	delete(w.news, kind)
	return event, true
}

// events passes what libvirt tells of our machines to whoever reads them.
type events struct {
	mu       sync.Mutex
	watchers map[*watcher]struct{}
}

// published takes one event from libvirt. It never blocks, for a slow reader stops the whole connection.
func (v *events) published(message any) {
	switch m := message.(type) {
	case rpc.DomainEventLifecycleMsg:
		v.lifecycle(m)
	case *rpc.DomainEventCallbackWatchdogMsg:
		v.publish(m.Msg.Dom, hyper.Event{Watchdog: true})
	case *rpc.DomainEventCallbackRebootMsg:
		v.publish(m.Msg.Dom, hyper.Event{Rebooted: true})
	}
}

func (v *events) lifecycle(e rpc.DomainEventLifecycleMsg) {
	var event hyper.Event
	switch rpc.DomainEventType(e.Event) {
	case rpc.DomainEventSuspended:
		if rpc.DomainEventSuspendedDetailType(e.Detail) != rpc.DomainEventSuspendedIoerror {
			return
		}
		event.NoSpace, event.Reason = true, noSpace // domain.go has all other errors of disks go to the guest
	case rpc.DomainEventResumed:
		event.Resumed = true
	case rpc.DomainEventStopped:
		event.End, event.Reason = stopReason(e.Detail)
	case rpc.DomainEventCrashed:
		event.End, event.Reason = hyper.Failed, crashed
	default:
		return
	}
	v.publish(e.Dom, event)
}

// publish passes an event of a domain on, if that is a machine of ours.
func (v *events) publish(d rpc.Domain, event hyper.Event) {
	if !strings.HasPrefix(d.Name, namePrefix) {
		return
	}
	event.ID = formatUUID(d.UUID)
	v.mu.Lock()
	defer v.mu.Unlock()
	for w := range v.watchers {
		w.add(event)
	}
}

const (
	crashed = "the guest crashed"
	noSpace = "no space is left on the host for what its guest writes to a disk"
)

// publishStill reports machines that stand still for want of space: libvirt reports them once, perhaps of a time when
// nobody listened.
func (l *Libvirt) publishStill(ctx context.Context) {
	type reply struct{ state, reason int32 }
	paused, err := call(ctx, l.daemon, func(s *session) ([]rpc.Domain, error) {
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
		r, err := call(ctx, l.daemon, func(s *session) (reply, error) {
			state, reason, err := s.DomainGetState(d, 0)
			return reply{state, reason}, err
		})
		if err == nil && rpc.DomainState(r.state) == rpc.DomainPaused &&
			rpc.DomainPausedReason(r.reason) == rpc.DomainPausedIoerror {
			l.events.publish(d, hyper.Event{NoSpace: true, Reason: noSpace})
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

// Events keeps the connection alive, with a growing pause between attempts, for as long as ctx lasts. The channel is
// closed when ctx ends or the hypervisor is closed.
func (l *Libvirt) Events(ctx context.Context) <-chan hyper.Event {
	w := l.events.watch()
	out := make(chan hyper.Event)
	l.daemon.running.Add(2)
	go func() {
		defer l.daemon.running.Done()
		l.stayConnected(ctx)
	}()
	go func() {
		defer l.daemon.running.Done()
		defer close(out)
		defer l.events.unwatch(w)
		for {
			e, ok := l.events.next(w)
			if !ok {
				select {
				case <-w.wake:
				case <-ctx.Done():
					return
				case <-l.daemon.closing:
					return
				}
				continue
			}
			select {
			case out <- e:
			case <-ctx.Done():
				return
			case <-l.daemon.closing:
				return
			}
		}
	}()
	return out
}

func (v *events) watch() *watcher {
	w := &watcher{news: map[hyper.Event]hyper.Event{}, wake: make(chan struct{}, 1)}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watchers[w] = struct{}{}
	return w
}

func (v *events) unwatch(w *watcher) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.watchers, w)
}

func (v *events) next(w *watcher) (hyper.Event, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return w.next()
}

func (l *Libvirt) stayConnected(ctx context.Context) {
	const first, last = 50 * time.Millisecond, 2 * time.Second
	pause := first
	for {
		s, err := l.daemon.session(ctx)
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
		case <-l.daemon.closing:
			timer.Stop()
			return
		}
	}
}
