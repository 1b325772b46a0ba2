package server

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/hostlink"
	"github.com/grange-project/grange/internal/server/hub"
	"github.com/grange-project/grange/internal/store"
)

// Each change wakes those who wait for its key, and nobody else; nobody sleeps through a change that came before it
// asked.
func TestHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hub.New(hostlink.KeyOf)
		h.Miss(10)
		var mu sync.Mutex
		woken := map[string]int{}
		waits := func(key string, after int64) {
			go func() {
				if h.Wait(t.Context(), key, after) == nil {
					mu.Lock()
					defer mu.Unlock()
					woken[key]++
				}
			}()
		}
		expect := func(step string, want map[string]int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if d := cmp.Diff(want, woken); d != "" {
				t.Errorf("%s: %s", step, d)
			}
			clear(woken)
		}
		for range 3 {
			waits("h1", 10)
		}
		waits("h2", 10)
		waits(hub.Everything, 10)
		waits("h3", 9)
		expect("before the hub knew anything", map[string]int{"h3": 1})
		h.Tell([]store.Change{{Revision: 11, Kind: store.KindVM, ID: "v", Host: "h1"}}, 11)
		expect("a VM of h1", map[string]int{"h1": 3, hub.Everything: 1})
		waits("h1", 10)
		waits("h1", 11)
		expect("what came before", map[string]int{"h1": 1})
		h.Tell([]store.Change{{Revision: 12, Kind: store.KindHost, ID: "h2"},
			{Revision: 12, Kind: store.KindUser, ID: "u"}}, 12)
		expect("host h2", map[string]int{"h2": 1})
		waits("h2", 12)
		h.Tell([]store.Change{{Revision: 13, Kind: store.KindNetwork, ID: "lan"}}, 13)
		expect("a network", map[string]int{"h1": 1, "h2": 1})
		waits("h1", 13)
		h.Miss(20)
		expect("the feed has a gap", map[string]int{"h1": 1})
	})
}

func TestWatch(t *testing.T) {
	l := newLab(t)
	ctx, end := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { _ = l.follow(ctx) })
	defer all.Wait()
	defer end()
	page, err := l.VMs.List(ctx, ann, VMFilter{})
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		changes []Watched
		upTo    int64
		err     error
	}
	watch := func(after int64) chan answer {
		got := make(chan answer, 1)
		all.Go(func() {
			changes, upTo, err := l.Watch(ctx, ann, WatchFilter{}, after)
			got <- answer{changes, upTo, err}
		})
		return got
	}
	first := watch(page.Revision)
	l.create(otto, CreateVM{Project: "atlas", Name: "wn", Image: "micro", Shape: "small"}) // ann does not see it
	v := l.create(ann, web("web"))[0]
	got := <-first
	if got.err != nil || len(got.changes) != 1 || got.changes[0].VM == nil || got.changes[0].VM.ID != v.ID ||
		got.upTo < v.Revision {
		t.Fatalf("%+v", got)
	}
	second := watch(got.upTo)
	if _, err := l.VMs.Delete(ctx, ann, v.ID, 0); err != nil {
		t.Fatal(err)
	}
	if got = <-second; got.err != nil || len(got.changes) != 1 || !got.changes[0].Deleted || got.changes[0].ID != v.ID {
		t.Errorf("%+v", got)
	}
	last := watch(got.upTo)
	end()
	if got = <-last; got.err == nil {
		t.Errorf("%+v", got)
	}
}

func TestStreams(t *testing.T) {
	l := newLab(t)
	v := l.running(ann, web("web"), l.host("h1", "east"))
	type answer struct {
		conn io.ReadWriteCloser
		err  error
	}
	opened := make(chan answer, 1)
	go func() {
		conn, err := l.Streams.Open(context.Background(), ann, v.ID, fleet.StreamTCP, 22)
		opened <- answer{conn, err}
	}()
	order := l.order("id-h1")
	if order.VM != v.ID || order.Port != 22 || order.Server != "https://server.example.org" {
		t.Fatalf("%+v", order)
	}
	here, there := net.Pipe()
	if err := l.Streams.Bring("id-h2", order.ID, there); code(err) != CodeNoStream {
		t.Error("another host brings it:", err)
	}
	over := make(chan error, 1)
	go func() { over <- l.Streams.Bring("id-h1", order.ID, there) }()
	got := <-opened
	if got.err != nil {
		t.Fatal(got.err)
	}
	go io.WriteString(here, "SSH-2.0\n")
	buffer := make([]byte, 8)
	if _, err := io.ReadFull(got.conn, buffer); err != nil || string(buffer) != "SSH-2.0\n" {
		t.Errorf("%q %v", buffer, err)
	}
	got.conn.Close()
	if err := <-over; err != nil {
		t.Error(err)
	}
	l.view(func(tx *store.Tx) error {
		left, err := tx.Streams("")
		if len(left) > 0 {
			t.Errorf("%+v", left)
		}
		return err
	})
	if l.streams.all != 0 || len(l.streams.open) != 0 || len(l.streams.waiting) != 0 {
		t.Errorf("%+v", l.streams)
	}
}

// order waits for the order of a stream.
func (l *lab) order(host string) (order store.Stream) {
	l.t.Helper()
	var after int64
	for {
		l.view(func(tx *store.Tx) error {
			after = tx.Revision()
			all, err := tx.Streams(host)
			if len(all) > 0 {
				order = all[0]
			}
			return err
		})
		if order.ID != "" {
			return order
		}
		if _, err := l.store.Wait(l.t.Context(), after); err != nil {
			l.t.Fatal(err)
		}
	}
}

func TestStreamsRefused(t *testing.T) {
	l := newLab(t)
	v := l.running(ann, web("web"), l.host("h1", "east"))
	off := l.create(ann, web("off"))[0]
	for name, c := range map[string]struct {
		who  farm.Identity
		vm   string
		kind string
		port int
		want farm.Code
	}{
		"no kind":     {ann, v.ID, "udp", 1, CodeBadVM},
		"no port":     {ann, v.ID, fleet.StreamTCP, 0, CodeBadVM},
		"a port":      {ann, v.ID, fleet.StreamConsole, 1, CodeBadVM},
		"no display":  {ann, v.ID, fleet.StreamDisplay, 0, farm.CodeNoDisplay},
		"display at":  {ann, v.ID, fleet.StreamDisplay, 5900, CodeBadVM},
		"another's":   {otto, v.ID, fleet.StreamConsole, 0, farm.CodeNoVM},
		"not running": {ann, off.ID, fleet.StreamConsole, 0, farm.CodeVMState},
	} {
		if _, err := l.Streams.Open(t.Context(), c.who, c.vm, c.kind, c.port); code(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range mostStreamsOf {
		if err := l.streams.enter("ann"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Streams.Open(t.Context(), ann, v.ID, fleet.StreamConsole, 0); code(err) != CodeStreams {
		t.Error(err)
	}
	if err := l.streams.enter("otto"); err != nil {
		t.Error("another has his own:", err)
	}
}

// A host that does not bring a stream is waited for some time, and no longer.
func TestStreamThatNeverComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreams()
		_, forget := s.expect("id", "h1")
		time.Sleep(bringTimeout)
		forget()
		here, there := net.Pipe()
		defer here.Close()
		if err := s.bring("h1", "id", there); code(err) != CodeNoStream {
			t.Error(err)
		}
	})
}

func TestLateStreamIsClosed(t *testing.T) {
	s := newStreams()
	_, forget := s.expect("id", "h1")
	here, there := net.Pipe()
	if err := s.bring("h1", "id", there); err != nil {
		t.Fatal(err)
	}
	forget()
	if _, err := here.Read(make([]byte, 1)); err != io.EOF {
		t.Error(err)
	}
}
