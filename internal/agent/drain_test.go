package agent

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

func (a *Agent) drainNow(t *testing.T, reason string, c Caller) (api.Drain, error) {
	t.Helper()
	body, _ := json.Marshal(api.Drain{Reason: reason})
	w := httptest.NewRecorder()
	err := a.postDrain(w, httptest.NewRequest("POST", "/v1/drain", bytes.NewReader(body)), c)
	var out api.Drain
	if err == nil {
		err = json.Unmarshal(w.Body.Bytes(), &out)
	}
	return out, err
}

func (a *Agent) endDrain(c Caller) error {
	return a.deleteDrain(httptest.NewRecorder(), httptest.NewRequest("DELETE", "/v1/drain", nil), c)
}

// A drained host grants nothing: who waits is told why, and goes on when it is over; who would not wait is refused.
func TestDrainedLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, done := newLedger(topologytest.CERN2650v2(), numa.Reserve{}), make(chan string, 8)
		claimed(l, t.Context(), "before", request(1, "0-31"), done)
		if got := <-done; got != "before" {
			t.Fatal(got)
		}
		l.setDrain(&api.Drain{Reason: "KVM is loaded anew"})
		if left := l.jobHolders(); len(left) != 1 || left[0] != "before" {
			t.Errorf("left: %v", left)
		}
		var told string
		go func() {
			if _, err := l.claim(t.Context(), "waits", "waits", request(1, "0-31"), false,
				func(why string) { told = why }); err == nil {
				done <- "waits"
			}
		}()
		synctest.Wait()
		if !strings.Contains(told, "KVM is loaded anew") || len(done) > 0 {
			t.Errorf("a job that comes meanwhile is told %q; %d were granted", told, len(done))
		}
		_, err := l.claim(t.Context(), "hasty", "hasty", request(1, "0-31"), true, quiet)
		if !farm.IsCode(err, CodeHostDrained) || !farm.IsKind(err, farm.NoCapacity) {
			t.Errorf("a job that would not wait: %v", err)
		}
		l.release("before")
		synctest.Wait()
		if len(done) > 0 || len(l.jobHolders()) > 0 {
			t.Error("the end of a VM let another one in")
		}
		l.setDrain(nil)
		if got := <-done; got != "waits" {
			t.Error(got)
		}
	})
}

// A drain outlives the agent: whoever drained the host may have been killed in the middle of a change.
func TestDrainIsKept(t *testing.T) {
	dir := t.TempDir()
	a := claimAgent(dir)
	if _, err := a.drainNow(t, "KVM is loaded anew", Caller{UID: 12345}); !farm.IsKind(err, farm.Denied) {
		t.Errorf("a user drained the host: %v", err)
	}
	for _, reason := range []string{"", "two\nlines", strings.Repeat("x", mostDrainReason+1)} {
		if _, err := a.drainNow(t, reason, admin); !farm.IsKind(err, farm.Invalid) {
			t.Errorf("reason %.20q: %v", reason, err)
		}
	}
	if err := a.endDrain(admin); err != nil {
		t.Errorf("ending what is not: %v", err)
	}
	first, err := a.drainNow(t, "KVM is loaded anew", admin)
	if err != nil {
		t.Fatal(err)
	}
	again := claimAgent(dir)
	again.loadDrain()
	if d := again.ledger.drain(); d == nil || d.Reason != first.Reason || !d.Since.Equal(first.Since) {
		t.Fatalf("after a restart: %+v", d)
	}
	second, err := again.drainNow(t, "another reason", admin)
	if err != nil || second.Reason != "another reason" || !second.Since.Equal(first.Since) {
		t.Errorf("drained again: %+v, %v", second, err)
	}
	if err := again.refusal(); !farm.IsCode(err, CodeHostDrained) || len(again.takesNothing()) != 1 {
		t.Errorf("a cloud VM: %v, %v", err, again.takesNothing())
	}
	if !Drained(dir) {
		t.Error("a probe of KVM would boot a guest on the drained host")
	}
	probed := 0
	again.probeAgain = func() {
		if probed++; again.ledger.drain() == nil {
			t.Error("VMs were let in before KVM was looked at")
		}
	}
	if err := again.endDrain(Caller{UID: 12345}); !farm.IsKind(err, farm.Denied) {
		t.Errorf("a user ended the drain: %v", err)
	}
	if err := again.endDrain(admin); err != nil || probed != 1 || again.refusal() != nil {
		t.Errorf("ended: %v, KVM looked at %d times, %v", err, probed, again.refusal())
	}
	if Drained(dir) {
		t.Error("the drain's file stays")
	}
	if err := os.WriteFile(again.drainPath(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := claimAgent(dir)
	if broken.loadDrain(); broken.ledger.drain() == nil {
		t.Error("a drain that cannot be read does not count")
	}
}
