package ledger

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

func request(cpus int, allowed string) numa.Request {
	set, err := farm.ParseCPUSet(allowed)
	if err != nil {
		panic(err)
	}
	return numa.Request{VCPUs: cpus, Memory: farm.GiB, Allowed: set}
}

func quiet(string) {}

// claimed waits for a grant in the background and tells its name on done.
func claimed(l *Ledger, ctx context.Context, name string, r numa.Request, done chan<- string) {
	go func() {
		if _, err := l.Claim(ctx, name, name, r, false, quiet); err != nil {
			name += ": " + err.Error()
		}
		done <- name
	}()
	synctest.Wait()
}

func TestLedgerServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, done := New(topologytest.CERN2650v2(), numa.Reserve{}, Host{}), make(chan string, 8)
		claimed(l, t.Context(), "all", request(32, "0-31"), done)
		claimed(l, t.Context(), "big", request(32, "0-31"), done)
		claimed(l, t.Context(), "small", request(1, "0-31"), done)
		if got := <-done; got != "all" || len(done) > 0 {
			t.Fatalf("%q was served, then %d more", got, len(done))
		}
		l.Release("all")
		synctest.Wait()
		if got := <-done; got != "big" || len(done) > 0 {
			t.Fatalf("%q was served, then %d more: the small one must not starve the big one", got, len(done))
		}
		l.Release("big")
		if got := <-done; got != "small" {
			t.Fatal(got)
		}
	})
}

func TestLedgerLetsOthersPassOnOtherCPUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, done := New(topologytest.CERN2650v2(), numa.Reserve{}, Host{}), make(chan string, 8)
		claimed(l, t.Context(), "first", request(8, "0-7"), done)
		claimed(l, t.Context(), "same CPUs", request(8, "0-7"), done)
		claimed(l, t.Context(), "other CPUs", request(8, "8-15"), done)
		if a, b := <-done, <-done; a != "first" || b != "other CPUs" {
			t.Errorf("served %q and %q", a, b)
		}
		l.Release("first")
		if got := <-done; got != "same CPUs" {
			t.Error(got)
		}
	})
}

// TestLedgerBatchJobsDoNotQueueTwice: what a batch system gave to a job is not for those who wait here without one.
func TestLedgerBatchJobsDoNotQueueTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, done := New(topologytest.CERN2650v2(), numa.Reserve{}, Host{}), make(chan string, 8)
		claimed(l, t.Context(), "half", request(16, "0-15"), done)
		<-done
		claimed(l, t.Context(), "someone", request(32, "0-31"), done)
		for _, name := range []string{"job", "next job"} {
			l.SetBatchJob(name, "slurm/"+name)
			claimed(l, t.Context(), name, request(16, "16-31"), done)
		}
		if got := <-done; got != "job" || len(done) > 0 {
			t.Fatalf("%q was served, then %d more", got, len(done))
		}
		l.Release("job")
		if got := <-done; got != "next job" {
			t.Error(got)
		}
		l.Release("half")
		l.Release("next job")
		if got := <-done; got != "someone" {
			t.Error(got)
		}
	})
}

func TestLedgerWaiterThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, done := New(topologytest.CERN2650v2(), numa.Reserve{}, Host{}), make(chan string, 8)
		claimed(l, t.Context(), "all", request(32, "0-31"), done)
		<-done
		ctx, cancel := context.WithCancelCause(t.Context())
		l.SetBatchJob("leaver", "slurm/7")
		claimed(l, ctx, "leaver", request(32, "0-31"), done)
		claimed(l, t.Context(), "next", request(1, "0-31"), done)
		gone := errors.New("the caller has gone")
		cancel(gone)
		if got := <-done; got != "leaver: "+gone.Error() {
			t.Error(got)
		}
		if len(l.claims.keys) != 0 {
			t.Errorf("keys %v", l.claims.keys)
		}
		l.Release("all")
		if got := <-done; got != "next" {
			t.Error(got)
		}
		l.Release("next")
		if room, holders, waiting := l.View(0); room.Free.Len() != 32 || len(holders) != 0 || waiting != 0 {
			t.Errorf("left: %d free, %v, %d waiting", room.Free.Len(), holders, waiting)
		}
	})
}

func TestLedgerSaysWhoHoldsWhat(t *testing.T) {
	l := New(topologytest.CERN2650v2(), numa.Reserve{}, Host{})
	if _, err := l.Claim(t.Context(), "a", "grange-a (alice: make)", request(31, "0-31"), true, quiet); err != nil {
		t.Fatal(err)
	}
	_, err := l.Claim(t.Context(), "b", "grange-b (bob: make)", request(2, "0-31"), true, quiet)
	if !farm.IsKind(err, farm.NoCapacity) || !strings.Contains(err.Error(), "grange-a (alice: make) holds CPUs") {
		t.Errorf("%v", err)
	}
	// What can never work is told at once, also to those who would wait.
	_, err = l.Claim(t.Context(), "c", "c", request(64, "0-31"), false, quiet)
	if e := new(farm.Error); !errors.As(err, &e) || e.Code != farm.CodeTooBig {
		t.Errorf("%v", err)
	}
}

func TestLedgerAdoptsWhatRuns(t *testing.T) {
	before := New(topologytest.CERN2650v2(), numa.Reserve{}, Host{})
	plan, err := before.Claim(t.Context(), "a", "a", request(16, "0-31"), true, quiet)
	if err != nil {
		t.Fatal(err)
	}
	after := New(topologytest.CERN2650v2(), numa.Reserve{}, Host{})
	after.Adopt("a", "a", plan)
	other, err := after.Claim(t.Context(), "b", "b", request(16, "0-31"), true, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if both := plan.CPUs().And(other.CPUs()); !both.Empty() {
		t.Errorf("CPUs %v are granted twice", both)
	}
}

// TestLedgerLooksAgain: pages that were made a moment ago are there before somebody is told that they never will be.
func TestLedgerLooksAgain(t *testing.T) {
	host := topologytest.CERN2650v2()
	for i := range host.Nodes {
		host.Nodes[i].Pages = nil
	}
	l := New(host, numa.Reserve{}, Host{})
	want := request(1, "0-31")
	want.Pages = []farm.Bytes{2 * farm.MiB}
	looks := 0
	l.host.Reread = func() { looks++ }
	if _, err := l.Claim(t.Context(), "a", "a", want, true, quiet); !farm.IsCode(err, farm.CodeTooBig) || looks != 1 {
		t.Fatalf("without pages: %v after %d looks", err, looks)
	}
	l.host.Reread = func() {
		made := topologytest.CERN2650v2()
		for i := range made.Nodes {
			made.Nodes[i].Pages = []farm.HugePages{{Size: 2 * farm.MiB, Total: 1024, Free: 1024}}
		}
		l.SetTopology(made, numa.Reserve{})
	}
	plan, err := l.Claim(t.Context(), "b", "b", want, true, quiet)
	if err != nil || plan.Cells[0].PageSize != 2*farm.MiB {
		t.Errorf("after pages were made: %v, %+v", err, plan)
	}
}
