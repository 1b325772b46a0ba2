package ledger

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

// A drained host grants nothing: who waits is told why, and goes on when it is over; who would not wait is refused.
func TestDrainedLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, done := New(topologytest.CERN2650v2(), numa.Reserve{}, Host{}), make(chan string, 8)
		claimed(l, t.Context(), "before", request(1, "0-31"), done)
		if got := <-done; got != "before" {
			t.Fatal(got)
		}
		l.Drain(Drain{Reason: "KVM is loaded anew"})
		if left := l.JobHolders(); len(left) != 1 || left[0] != "before" {
			t.Errorf("left: %v", left)
		}
		var told string
		go func() {
			if _, err := l.Claim(t.Context(), "waits", "waits", request(1, "0-31"), false,
				func(why string) { told = why }); err == nil {
				done <- "waits"
			}
		}()
		synctest.Wait()
		if !strings.Contains(told, "KVM is loaded anew") || len(done) > 0 {
			t.Errorf("a job that comes meanwhile is told %q; %d were granted", told, len(done))
		}
		_, err := l.Claim(t.Context(), "hasty", "hasty", request(1, "0-31"), true, quiet)
		if !farm.IsCode(err, CodeHostDrained) || !farm.IsKind(err, farm.NoCapacity) {
			t.Errorf("a job that would not wait: %v", err)
		}
		l.Release("before")
		synctest.Wait()
		if len(done) > 0 || len(l.JobHolders()) > 0 {
			t.Error("the end of a VM let another one in")
		}
		l.Resume()
		if got := <-done; got != "waits" {
			t.Error(got)
		}
	})
}
