package hostlink

import (
	"testing"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// TestReportBesideATransaction: a transaction asks whether a host is silent while a report of it waits for the
// transaction. All writes of the server would wait for each other for good.
func TestReportBesideATransaction(t *testing.T) {
	l := newLabOn(t, t.TempDir()+"/farm.db")
	id, err := l.HostAt(t.Context(), l.joined("wn1"))
	if err != nil {
		t.Fatal(err)
	}
	reported := make(chan error, 1)
	l.update(func(*store.Tx) error {
		go func() {
			_, err := l.Report(t.Context(), id, fleet.Report{Instance: "i", Facts: &fleet.Facts{
				Capability: fleet.Capability, Instance: "i", Boot: "b", Now: l.clock()}})
			reported <- err
		}()
		for link := l.link(id.Host); link.mu.TryLock(); time.Sleep(time.Millisecond) { // until the report has it
			link.mu.Unlock()
		}
		if l.Silent(farm.Host{ID: id.Host, Seen: l.clock()}) || l.Unheard(id.Host) != nil {
			t.Error("silent")
		}
		return nil
	})
	if err := <-reported; err != nil {
		t.Error(err)
	}
}
