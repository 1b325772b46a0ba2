package machine

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/hyper/fake"
)

// bench is a VM on the fake hypervisor under a power, in a bubble of fake time.
type bench struct {
	*testing.T
	*Power
	host     *fake.Host
	m        *Machine
	frozen   atomic.Bool
	attended atomic.Bool
	news     atomic.Int32
	stop     context.CancelFunc
	done     chan struct{}
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, host: fake.NewHost()}
	b.m = &Machine{ID: "00000000-0000-4000-8000-000000000001", Sockets: t.TempDir()}
	b.attended.Store(true)
	v := b.host.Open()
	_, err := v.Start(t.Context(), hyper.Machine{ID: b.m.ID, Name: "grange-x", Boot: hyper.Boot{Kernel: "/k"},
		Plan: farm.Plan{VCPUs: []farm.CPUSet{farm.NewCPUSet(0)},
			Guest: farm.GuestTopology{Sockets: 1, Cores: 1, Threads: 1},
			Cells: []farm.GuestCell{{VCPUs: farm.NewCPUSet(0), Memory: farm.MiB}}}})
	if err != nil {
		t.Fatal(err)
	}
	b.open(t)
	return b
}

// open makes a power as a new agent would.
func (b *bench) open(t *testing.T) {
	b.Power = NewPower(b.host.Open(), func(int) bool { return b.frozen.Load() }, func() { b.news.Add(1) })
	ctx, cancel := context.WithCancel(context.Background())
	b.stop, b.done = cancel, make(chan struct{})
	go func(p *Power, done chan struct{}) {
		defer close(done)
		p.Run(ctx, b.attended.Load, func(err error) { t.Error(err) })
	}(b.Power, b.done)
}

func (b *bench) close() { b.stop(); <-b.done }

func (b *bench) boot() {
	b.Helper()
	if err := b.Start(b.Context(), b.m); err != nil {
		b.Fatal(err)
	}
}

// heartbeats for a while, every second.
func (b *bench) heartbeats(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
		b.Heartbeat()
	}
}

func (b *bench) want(what string, state hyper.State, w Wanted) {
	b.Helper()
	synctest.Wait()
	found, err := b.host.Open().List(context.Background())
	if err != nil || len(found) != 1 {
		b.Fatalf("%v %v", found, err)
	}
	if found[0].State != state || b.Now() != w {
		b.Errorf("%s: the machine is %s and %+v is wanted; expected %s and %+v", what, found[0].State,
			b.Now(), state, w)
	}
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

var (
	runs      = Wanted{}
	suspended = Wanted{Suspended: true}
	silent    = Wanted{Silent: true}
)

func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		b.Expect()
		time.Sleep(time.Minute)
		b.want("before it ever ran", hyper.Paused, runs)
		b.boot()
		b.want("at its start", hyper.Running, runs)
		b.heartbeats(time.Minute)
		b.want("beating", hyper.Running, runs)
		time.Sleep(HeartbeatTimeout - time.Second)
		b.want("within the timeout", hyper.Running, runs)
		time.Sleep(2 * time.Second)
		b.want("beyond it", hyper.Paused, silent)
		time.Sleep(time.Hour)
		b.want("for an hour", hyper.Paused, silent)
		b.Heartbeat()
		b.want("at the next heartbeat", hyper.Running, runs)
		if n := b.news.Load(); n != 2 {
			t.Errorf("told %d times", n)
		}
	})
}

func TestNoHeartbeatsPromised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		b.boot()
		time.Sleep(time.Hour)
		b.want("without a promise", hyper.Running, runs)
		b.Expect()
		b.attended.Store(false)
		time.Sleep(time.Hour)
		b.want("kept without a caller", hyper.Running, runs)
		b.attended.Store(true)
		time.Sleep(time.Second)
		b.want("a caller that is silent", hyper.Paused, silent)
	})
}

// TestOrders holds that heartbeats never fight what somebody ordered.
func TestOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		b.Expect()
		b.boot()
		b.Heartbeat()
		b.must(b.Order(t.Context(), true))
		b.want("suspended", hyper.Paused, suspended)
		b.heartbeats(time.Minute)
		b.want("suspended, its caller alive", hyper.Paused, suspended)
		time.Sleep(time.Minute)
		b.want("suspended and silent", hyper.Paused, Wanted{true, true})
		b.heartbeats(10 * time.Second)
		b.want("suspended, sending heartbeats again", hyper.Paused, suspended)
		b.must(b.Order(t.Context(), false))
		b.want("resumed", hyper.Running, runs)

		time.Sleep(time.Minute)
		b.want("silent", hyper.Paused, silent)
		b.must(b.Order(t.Context(), false))
		b.want("resumed by order although silent", hyper.Running, runs)
		time.Sleep(time.Minute)
		b.want("and it stays so", hyper.Running, runs)
		b.heartbeats(10 * time.Second)
		time.Sleep(time.Minute)
		b.want("until heartbeats come and end again", hyper.Paused, silent)
		b.must(b.Order(t.Context(), true))
		b.Heartbeat()
		time.Sleep(time.Second)
		b.want("suspended while silent", hyper.Paused, suspended)
	})
}

// TestFrozen holds that a process that cannot answer is not asked.
func TestFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		b.Expect()
		b.frozen.Store(true)
		go func() {
			time.Sleep(time.Minute)
			b.frozen.Store(false)
		}()
		began := time.Now()
		b.boot()
		if d := time.Since(began); d < time.Minute || d > time.Minute+time.Second {
			t.Errorf("ran after %v", d)
		}
		b.Heartbeat()
		b.frozen.Store(true)
		time.Sleep(time.Minute)
		b.want("frozen", hyper.Running, silent) // as the hypervisor knows it
		b.frozen.Store(false)
		b.Heartbeat()
		time.Sleep(time.Second)
		b.want("thawed", hyper.Running, runs)

		b.frozen.Store(true)
		b.must(b.Order(t.Context(), true))
		b.want("an order while frozen", hyper.Running, suspended)
		b.frozen.Store(false)
		b.heartbeats(2 * time.Second)
		b.want("thawed after an order", hyper.Paused, suspended)
	})
}

// TestThawed: who sets clocks is told once of a machine whose process was frozen, and is not any more.
func TestThawed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		var resumed atomic.Int32
		b.Resumed = func(*Machine) { resumed.Add(1) }
		b.boot()
		for n := range int32(3) {
			b.frozen.Store(true)
			time.Sleep(10 * time.Second)
			if got := resumed.Load(); got != n {
				t.Errorf("it went on %d times while it was frozen, want %d", got, n)
			}
			b.frozen.Store(false)
			time.Sleep(10 * time.Second)
			if got := resumed.Load(); got != n+1 {
				t.Errorf("it went on %d times, want %d", got, n+1)
			}
		}
	})
}

// TestPowerOfANewAgent holds that what an earlier agent stopped goes on for the right reason only.
func TestPowerOfANewAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Expect()
		b.boot()
		time.Sleep(time.Minute)
		b.want("silent", hyper.Paused, silent)
		again := func(state hyper.State) {
			b.close()
			b.open(t)
			b.TakeOver(b.m, state)
			b.Expect()
		}
		again(hyper.Paused)
		b.want("taken over", hyper.Paused, silent)
		for range 100 {
			time.Sleep(time.Second / 10)
			b.want("the callers are as silent as before", hyper.Paused, silent)
		}
		b.Heartbeat()
		b.want("heartbeats again", hyper.Running, runs)
		again(hyper.Running)
		time.Sleep(HeartbeatTimeout - time.Second)
		b.want("callers have time to come", hyper.Running, runs)
		time.Sleep(time.Minute)
		b.must(b.Order(t.Context(), true))
		b.want("silent and suspended", hyper.Paused, Wanted{true, true})
		again(hyper.Paused)
		b.heartbeats(time.Minute)
		b.want("suspended, after all", hyper.Paused, suspended)
		b.must(b.Order(t.Context(), false))
		b.must(os.Remove(filepath.Join(b.m.Sockets, powerFile)))
		b.must(b.host.Open().Suspend(t.Context(), b.m.ID))
		again(hyper.Paused)
		b.heartbeats(time.Minute)
		b.want("paused by nobody knows whom", hyper.Paused, suspended)
		b.close()
	})
}

// TestHypervisorAway: what cannot be done now is done later.
func TestHypervisorAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.stop()
		<-b.done
		b.Expect()
		b.boot()
		b.host.Kill()
		if err := b.Order(t.Context(), true); err == nil {
			t.Error("suspended without a hypervisor")
		}
		if b.Now() != runs {
			t.Errorf("%+v is wanted after an order that failed", b.Now())
		}
		time.Sleep(time.Minute)
		b.listen(b.attended.Load)
		if err := b.settle(t.Context()); err == nil {
			t.Error("paused without a hypervisor")
		}
		b.host.Restart()
		b.must(b.settle(t.Context()))
		b.want("back", hyper.Paused, silent)
	})
}

// TestSilenceOfOurOwn pauses nobody while callers cannot reach us. Heartbeats that come are heard.
func TestSilenceOfOurOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		var reachable atomic.Bool
		b.close()
		b.open(t)
		b.Power.mu.Lock()
		b.Power.Reachable = reachable.Load
		b.Power.mu.Unlock()
		b.Expect()
		b.boot()
		time.Sleep(time.Minute)
		b.want("a minute without descriptors", hyper.Running, runs)
		reachable.Store(true)
		time.Sleep(HeartbeatTimeout + 2*time.Second)
		b.want("silent, and could be heard", hyper.Paused, silent)
		reachable.Store(false)
		time.Sleep(time.Second)
		b.want("silent before", hyper.Paused, silent)
		b.Heartbeat()
		b.want("a heartbeat by a connection that is there", hyper.Running, runs)
	})
}
