package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/uplink"
)

// Options say what a fleet pretends to be.
type Options struct {
	Hosts  int
	Prefix string // of their names; "": "sim-"
	Server string // URL
	Token  string // a join token for as many hosts; not needed for those whose identity is in Dir
	Dir    *os.Root
	Host   HostOptions // of each
	Churn  float64     // agents that are started anew, a second
	Pace   int         // hosts that are switched on, a second; 0: DefaultPace
	Log    *slog.Logger
	// Told, unless nil, is called with the number of a host each time that it is brought a wanted list.
	Told func(host int, list fleet.WantedList)
}

// Fleet is many hosts in one process. Each has its own identity, certificate and connections.
type Fleet struct {
	o     Options
	hosts []*Host
	joins atomic.Int64
}

// DefaultPace is how many hosts are switched on in a second: what a server of two cores stands that shares them with
// the hosts.
const DefaultPace = 250

// joinsAtOnce bounds how many hosts enrol at a time.
const joinsAtOnce = 32

// New makes the hosts. Nothing is connected yet.
func New(o Options) *Fleet {
	o.Prefix = cmp.Or(o.Prefix, "sim-")
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	f := &Fleet{o: o}
	first := NewHost(o.Host)
	for n := range o.Hosts {
		h := newLike(first)
		if o.Told != nil {
			h.told = func(list fleet.WantedList) { o.Told(n, list) }
		}
		f.hosts = append(f.hosts, h)
	}
	return f
}

func (f *Fleet) name(n int) string { return fmt.Sprintf("%s%05d", f.o.Prefix, n+1) }

func (f *Fleet) file(n int) string { return f.name(n) + ".json" }

// Joined is how many hosts have an identity.
func (f *Fleet) Joined() int { return int(f.joins.Load()) }

// Join has every host join that has not. It ends at the first that is refused.
func (f *Fleet) Join(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	places := make(chan struct{}, joinsAtOnce)
	for n := range f.hosts {
		places <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		all.Go(func() {
			defer func() { <-places }()
			if err := f.join(ctx, n); err != nil {
				cancel(fmt.Errorf("host %s: %w", f.name(n), err))
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

func (f *Fleet) join(ctx context.Context, n int) error {
	_, err := uplink.Join(ctx, uplink.JoinOptions{Dir: f.o.Dir, File: f.file(n), Server: f.o.Server, Token: f.o.Token,
		Name: f.name(n), MachineID: f.name(n)})
	if own := new(farm.Error); errors.As(err, &own) && own.Code == uplink.CodeJoined {
		err = nil
	}
	if err == nil {
		f.joins.Add(1)
	}
	return err
}

// Run links all hosts until ctx ends.
func (f *Fleet) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	restarts := make([]chan struct{}, len(f.hosts))
	tick := time.NewTicker(time.Second / time.Duration(cmp.Or(f.o.Pace, DefaultPace)))
	defer tick.Stop()
	for n := range f.hosts {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		restarts[n] = make(chan struct{}, 1)
		l, err := f.link(n)
		if err != nil {
			return err
		}
		all.Go(func() { f.keep(ctx, n, l, restarts[n]) })
	}
	f.churn(ctx, restarts)
	return nil
}

func (f *Fleet) link(n int) (*uplink.Link, error) {
	return uplink.New(uplink.Options{Dir: f.o.Dir, File: f.file(n), Host: f.hosts[n],
		Log: f.o.Log.With("host", f.name(n)), Servers: []string{f.o.Server}})
}

// keep links one host, and does so anew each time that its agent is started anew.
func (f *Fleet) keep(ctx context.Context, n int, l *uplink.Link, restart <-chan struct{}) {
	for ctx.Err() == nil {
		life, end := context.WithCancel(ctx)
		var link sync.WaitGroup
		link.Go(func() { l.Run(life) })
		select {
		case <-ctx.Done():
		case <-restart:
		}
		end()
		link.Wait()
		f.hosts[n].Restart()
		var err error
		if l, err = f.link(n); err != nil {
			f.o.Log.Error("agent not started anew", "host", f.name(n), "error", err)
			return
		}
	}
}

// churn starts agents anew, at random times, until ctx ends.
func (f *Fleet) churn(ctx context.Context, restarts []chan struct{}) {
	if f.o.Churn <= 0 || len(restarts) == 0 {
		<-ctx.Done()
		return
	}
	for ctx.Err() == nil {
		timer := time.NewTimer(time.Duration(rand.ExpFloat64() / f.o.Churn * float64(time.Second)))
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
			select {
			case restarts[rand.IntN(len(restarts))] <- struct{}{}:
			default:
			}
		}
	}
}
