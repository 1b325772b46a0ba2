package turns

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestTurns: a party that asks without end has its bound, and another one waits for one end at most.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := New(3, 2)
		var work sync.WaitGroup
		hold := func(party string, d time.Duration) {
			work.Go(func() {
				leave, err := ts.Enter(t.Context(), party)
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(d)
				leave()
				leave()
			})
		}
		for range 50 {
			hold("ann", time.Second)
			hold("bob", time.Second)
		}
		synctest.Wait()
		ts.mu.Lock()
		if ts.held["ann"]+ts.held["bob"] != 3 || ts.held["ann"] > 2 || ts.held["bob"] > 2 {
			t.Errorf("%v", ts.held)
		}
		ts.mu.Unlock()
		time.Sleep(10 * time.Second)
		began := time.Now()
		leave, err := ts.Enter(t.Context(), "cyd")
		if took := time.Since(began); err != nil || took > time.Second {
			t.Errorf("another party waited %v: %v", took, err)
		}
		leave()
		work.Wait()
		if ts.free != 3 || len(ts.held)+len(ts.waiting)+len(ts.order) != 0 {
			t.Errorf("%+v", ts)
		}
	})
}

// TestOnePartyAlone: a party alone has its bound, and one that goes away while it waits leaves nothing.
func TestOnePartyAlone(t *testing.T) {
	ts := New(3, 2)
	first, err := ts.Enter(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	second, err := ts.Enter(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := ts.Enter(ctx, "ann"); err == nil {
		t.Error("a third place")
	}
	first()
	second()
	if ts.free != 3 || len(ts.held)+len(ts.waiting)+len(ts.order) != 0 {
		t.Errorf("%+v", ts)
	}
}

// TestManyParties: whatever comes and goes, no place is lost, and none is given twice.
func TestManyParties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := New(4, 2)
		var work sync.WaitGroup
		var mu sync.Mutex
		inside, most := 0, 0
		for n := range 500 {
			r := rand.New(rand.NewPCG(1, uint64(n)))
			work.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(3000))*time.Millisecond)
				defer cancel()
				leave, err := ts.Enter(ctx, fmt.Sprint(r.IntN(7)))
				if err != nil {
					return
				}
				mu.Lock()
				inside++
				most = max(most, inside)
				mu.Unlock()
				time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
				mu.Lock()
				inside--
				mu.Unlock()
				leave()
			})
		}
		work.Wait()
		if most != 4 || ts.free != 4 || len(ts.held)+len(ts.waiting)+len(ts.order) != 0 {
			t.Errorf("%d at once; %+v", most, ts)
		}
	})
}
