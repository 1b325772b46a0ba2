package agent

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/ledger"
)

func (a *Agent) drainNow(t *testing.T, reason string, c Caller) (api.Drain, error) {
	t.Helper()
	body, _ := json.Marshal(api.Drain{Reason: reason})
	w := httptest.NewRecorder()
	err := routes{a}.postDrain(w, httptest.NewRequest("POST", "/v1/drain", bytes.NewReader(body)), c)
	var out api.Drain
	if err == nil {
		err = json.Unmarshal(w.Body.Bytes(), &out)
	}
	return out, err
}

func (a *Agent) endDrain(c Caller) error {
	return routes{a}.deleteDrain(httptest.NewRecorder(), httptest.NewRequest("DELETE", "/v1/drain", nil), c)
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
	again.recovery.loadDrain()
	if d, ok := again.ledger.Drained(); !ok || d.Reason != first.Reason || !d.Since.Equal(first.Since) {
		t.Fatalf("after a restart: %+v", d)
	}
	second, err := again.drainNow(t, "another reason", admin)
	if err != nil || second.Reason != "another reason" || !second.Since.Equal(first.Since) {
		t.Errorf("drained again: %+v, %v", second, err)
	}
	if err := again.machines.Refusal(); !farm.IsCode(err, ledger.CodeHostDrained) ||
		len(again.machines.TakesNothing()) != 1 {
		t.Errorf("a cloud VM: %v, %v", err, again.machines.TakesNothing())
	}
	if !Drained(dir) {
		t.Error("a probe of KVM would boot a guest on the drained host")
	}
	probed := 0
	again.probeAgain = func() {
		probed++
		if _, ok := again.ledger.Drained(); !ok {
			t.Error("VMs were let in before KVM was looked at")
		}
	}
	if err := again.endDrain(Caller{UID: 12345}); !farm.IsKind(err, farm.Denied) {
		t.Errorf("a user ended the drain: %v", err)
	}
	if err := again.endDrain(admin); err != nil || probed != 1 || again.machines.Refusal() != nil {
		t.Errorf("ended: %v, KVM looked at %d times, %v", err, probed, again.machines.Refusal())
	}
	if Drained(dir) {
		t.Error("the drain's file stays")
	}
	if err := os.WriteFile(again.recovery.drainPath(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := claimAgent(dir)
	broken.recovery.loadDrain()
	if _, ok := broken.ledger.Drained(); !ok {
		t.Error("a drain that cannot be read does not count")
	}
}
