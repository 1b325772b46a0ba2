// Package storetest is the contract of the store as tests. Both engines run it.
package storetest

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// timeout bounds every test: a busy machine is no broken one.
const timeout = 2 * time.Minute

// Run runs the contract. Fresh makes an empty database and gives its URL.
func Run(t *testing.T, fresh func(t *testing.T) (url string)) {
	for _, c := range []struct {
		name string
		test func(*suite)
	}{
		{"VMs", vms}, {"VMs are chosen by what a list asks", filters}, {"VM taken", vmTaken}, {"leases", leases},
		{"VM leaves a host", vmLeaves},
		{"the same observed again", sameObserved}, {"placed", placed}, {"sums", sums},
		{"hosts", hosts}, {"hosts seen", hostsSeen}, {"lists of hosts", hostLists}, {"touched", touched},
		{"small things", smallThings}, {"the same put again", samePut}, {"users", users}, {"sessions", sessions}, {"streams", streams},
		{"strangers", orphans}, {"settings", settings},
		{"catalogue of images", images}, {"orders of images", imageOrders},
		{"audit", audit}, {"usage", usage}, {"usage that counts for nobody", outside}, {"hours of usage", hours},
		{"stays of VMs", stays}, {"VMs that were never placed", noStay}, {"jobs", jobs}, {"findings", findings}, {"answers", answers}, {"incidents", incidents},
		{"incidents dropped", incidentsDropped}, {"names in the order of bytes", byteOrder}, {"text", badText},
		{"feed", feed}, {"feed by whole revisions", wholeRevisions}, {"feed gone", feedGone},
		{"feed of several writers", mixedWriters}, {"writers", writers}, {"together", together}, {"in order", inOrder},
		{"gone while written", goneInside}, {"gone behind another server", behindAnother},
		{"wait", wait}, {"wait for another", waitForOther},
		{"nothing written", nothingWritten}, {"rolled back", rolledBack}, {"an error passed over", passedOver},
		{"view", view}, {"ended context", endedContext}, {"gone away", goneAway},
		{"lease", lease}, {"lease of a dead server", deadLeader}, {"lease given back", resigned}, {"fence", fence},
		{"open again", openAgain},
		{"copy", copied}, {"copy into a farm", copyNotEmpty}, {"backup and restore", backup},
		{"model", model},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			c.test(&suite{T: t, ctx: ctx, fresh: fresh})
		})
	}
}

// suite is what one test has.
type suite struct {
	*testing.T
	ctx   context.Context
	fresh func(t *testing.T) string
}

// open opens a database, and closes it when the test ends.
func (s *suite) open(url string, o store.Options) *store.Store {
	s.Helper()
	db, err := store.OpenWith(s.ctx, url, o)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := db.Close(); err != nil {
			s.Error(err)
		}
	})
	return db
}

// new is a new farm.
func (s *suite) new() *store.Store {
	s.Helper()
	return s.open(s.fresh(s.T), store.Options{})
}

// update writes, and must not fail.
func (s *suite) update(db *store.Store, do func(*store.Tx) error) int64 {
	s.Helper()
	revision, err := db.Update(s.ctx, do)
	if err != nil {
		s.Fatal(err)
	}
	return revision
}

// view reads, and must not fail.
func (s *suite) view(db *store.Store, do func(*store.Tx) error) {
	s.Helper()
	if err := db.View(s.ctx, do); err != nil {
		s.Fatal(err)
	}
}

// same compares what was read with what should be there.
func same[T any](s *suite, what string, want T, err error, got T) {
	s.Helper()
	if err != nil {
		s.Errorf("%s: %v", what, err)
		return
	}
	if d := cmp.Diff(want, got, exact...); d != "" {
		s.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// exact compares domain types. A set that is empty and one that is not there are one.
var exact = cmp.Options{
	cmp.Comparer(func(a, b farm.CPUSet) bool { return a.Equal(b) }),
	cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
	cmpopts.EquateComparable(netip.Prefix{}),
	cmpopts.EquateEmpty(),
}

// fails checks the code of an error.
func (s *suite) fails(what string, err error, code farm.Code) {
	s.Helper()
	e, ok := errors.AsType[*farm.Error](err)
	if !ok || e.Code != code {
		s.Errorf("%s: %v, not %s", what, err, code)
	}
}

// in runs do in a transaction that is not kept, and gives its error.
func (s *suite) in(db *store.Store, do func(*store.Tx) error) error {
	_, err := db.Update(s.ctx, do)
	return err
}
