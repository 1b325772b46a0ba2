// Package uplink is a host's side of the link to the server: it joins, keeps its certificate young, brings the wanted
// list, reports, and opens streams. It knows the host through an interface, and decides nothing about VMs.
package uplink

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/sleep"
)

// Host is what a link needs of the host it speaks for.
type Host interface {
	// Facts are what the host says of itself.
	Facts(ctx context.Context) (fleet.Facts, error)
	// Want takes over what the server wants. Level, not edge: it returns at once, and the same list twice does nothing.
	// When it has returned, Observed has every VM of the list that the host will do anything about.
	Want(list fleet.WantedList)
	// Observed is every cloud VM that is here, and those wanted deleted that are gone; changed is closed at the
	// next change of these or of Facts.
	Observed() (vms []fleet.Observed, changed <-chan struct{})
	// Stream opens a stream to a VM. The caller closes it.
	Stream(ctx context.Context, o fleet.StreamOrder) (io.ReadWriteCloser, error)
}

// Options is what a link is made of.
type Options struct {
	Dir  *os.Root // where the host's identity is; Join put it there
	File string   // of the identity in it; "": IdentityFile
	Host Host
	Log  *slog.Logger
	// Images is the host's copy of the catalogue of images; nil: it keeps none.
	Images Images
	// Usage is what VMs of the host have used; nil: nobody counts.
	Usage Usage
	// Jobs are those of the host; nil: nobody says which there are.
	Jobs Jobs
	// Servers are tried before those that the server named; none: only those.
	Servers []string
	// Tell is told what is wrong whenever that becomes another thing, and nil when the link works again. Nil: nobody
	// wants to know.
	Tell func(wrong error)
}

// Link is the host's side of the link.
type Link struct {
	host    Host
	images  Images // nil: the host keeps no catalogue
	usage   Usage  // nil: nobody counts
	jobs    Jobs   // nil: nobody says which there are
	log     *slog.Logger
	keep    keeper
	servers []string
	tell    func(error)

	mu       sync.Mutex
	identity Identity
	caller   *caller // of the present identity

	instance string        // of the agent's process, from its facts
	taken    int64         // revision of the list that the host took over last
	spread   time.Duration // as the server said last
	streams  streams
	renewNot time.Time // before which renewal is not tried again
	said     farm.Code // what was last said to be wrong; "": nothing is
	linked   bool      // it was said that there is a link
}

// The times of a link. What the server says goes before them.
const (
	firstSpread = 2 * time.Second
	// most, while the server may just be started anew: who finds nobody costs nobody anything
	shortBack   = 5 * time.Second
	shortTries  = 12
	maxBackOff  = 30 * time.Second
	slowBackOff = 5 * time.Minute // when the server refuses for good: somebody may put that right
	otherAgent  = 20 * time.Second
	lookAgain   = 5 * time.Second // for a new identity, while there is no link
)

// New makes a link from the identity that Join left. The error is a *farm.Error of kind NotFound where there is none.
func New(o Options) (*Link, error) {
	l := &Link{host: o.Host, images: o.Images, usage: o.Usage, jobs: o.Jobs, log: o.Log,
		keep: keeper{o.Dir, cmp.Or(o.File, IdentityFile)}, servers: o.Servers, tell: o.Tell, spread: firstSpread}
	if l.tell == nil {
		l.tell = func(error) {}
	}
	id, err := l.keep.read()
	if err != nil {
		return nil, err
	}
	return l, l.use(id)
}

// use takes an identity over for all requests to come.
func (l *Link) use(id Identity) error {
	c, err := newCaller(id, l.servers)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.caller != nil {
		l.caller.close()
	}
	l.identity, l.caller = id, c
	return nil
}

func (l *Link) present() (Identity, *caller) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.identity, l.caller
}

// Run keeps the link until ctx ends. What goes wrong is said once, and again when it is another thing; it is never
// given up.
func (l *Link) Run(ctx context.Context) error {
	defer l.streams.all.Wait()
	defer func() { _, c := l.present(); c.close() }()
	failures := 0
	for ctx.Err() == nil {
		worked, err := l.session(ctx)
		if ctx.Err() != nil {
			break
		}
		if worked {
			failures = 0
		}
		if errors.Is(err, errRenewed) {
			continue
		}
		failures++
		l.say(err)
		l.pause(ctx, l.backOff(err, failures))
	}
	return nil
}

// pause waits, and no longer than until somebody joined this host anew.
func (l *Link) pause(ctx context.Context, d time.Duration) {
	until := time.Now().Add(d)
	for ctx.Err() == nil && time.Now().Before(until) {
		_ = sleep.For(ctx, min(time.Until(until), lookAgain))
		id, err := l.keep.read()
		if old, _ := l.present(); err != nil || id.Host == old.Host && id.Certificate == old.Certificate {
			continue
		}
		if err := l.use(id); err == nil {
			return
		}
	}
}

// say writes what is wrong once.
func (l *Link) say(err error) {
	code, hint := farm.Code("lost"), ""
	own := new(farm.Error)
	if errors.As(err, &own) {
		code, hint = own.Code, own.Hint
	}
	if code == l.said {
		return
	}
	l.said, l.linked = code, false
	id, _ := l.present()
	l.log.Warn("no link to the server", "host", id.Name, "code", code, "reason", err, "try", hint)
	l.tell(err)
}

// well writes that there is a link, where that was not said.
func (l *Link) well(server string) {
	if !l.linked {
		id, _ := l.present()
		l.log.Info("linked to the server", "host", id.Name, "server", server)
		l.tell(nil)
	}
	l.said, l.linked = "", true
}

// backOff is how long to wait after so many failures in a row.
func (l *Link) backOff(err error, failures int) time.Duration {
	own := new(farm.Error)
	known := errors.As(err, &own)
	switch {
	case own.Code == farm.CodeOtherAgent:
		return jitter(otherAgent)
	case own.Code == farm.CodeAgentNew && failures == 1: // an older server has said with it what it understands
		return rand.N(l.spread)
	case known && own.Kind != farm.Unavailable && own.Kind != farm.Internal &&
		own.Code != farm.CodeReportFirst:
		return jitter(slowBackOff)
	case failures == 1: // all hosts come back at once when a server is started anew: each at its own time
		return rand.N(l.spread)
	}
	most := shortBack
	if failures > shortTries {
		most = maxBackOff
	}
	return jitter(max(min(l.spread<<min(failures, 10), most), l.spread))
}

// jitter is between half of a time and all of it.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
