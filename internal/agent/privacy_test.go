package agent

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// vmsFor is what GET /v1/vms answers to a caller.
func (f *farmhouse) vmsFor(c Caller) (vms []api.VM) {
	f.Helper()
	w := httptest.NewRecorder()
	if err := f.agent.getVMs(w, httptest.NewRequest("GET", "/v1/vms", nil), c); err != nil {
		f.Fatal(err)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &vms); err != nil {
		f.Fatal(err)
	}
	return vms
}

// TestConsoleIsRoots shows the end of a cloud VM's console to root, and to others no more than that the VM ended.
func TestConsoleIsRoots(t *testing.T) {
	f := newFarmhouse(t)
	w := f.cloud()
	f.want(w)
	f.seesState(w, farm.VMRunning)
	v := f.agent.fleetByID(w.ID)
	const secret = "password: hunter2"
	v.noteThat(reasonOf(&farm.Error{Code: farm.CodeVMEnded, Message: "the VM ended in a kernel panic (" + secret + "); the end of its console:\n  " + secret}))
	f.sees("the note", w, func(o fleet.Observed) bool { return strings.Contains(o.Reason, secret) })
	other := Caller{UID: 4711}
	seen := f.vmsFor(other)
	if len(seen) != 1 || seen[0].Cloud.Reason != string(farm.CodeVMEnded) {
		t.Errorf("an ordinary account sees %+v", seen)
	}
	if text, _ := json.Marshal(seen); strings.Contains(string(text), "hunter2") {
		t.Errorf("an ordinary account sees the console: %s", text)
	}
	if root := f.vmsFor(admin); len(root) != 1 || !strings.Contains(root[0].Cloud.Reason, secret) {
		t.Errorf("root sees %+v", root)
	}
}

// TestCodeOf keeps what a guest or a person wrote out of what everybody sees.
func TestCodeOf(t *testing.T) {
	for reason, want := range map[string]string{
		"vm-ended: the VM ended; the end of its console:\n  x: y": "vm-ended", "": "", "its guest powered off": "", "Oops: 0000": "", "vm-ended": "vm-ended",
	} {
		if got := codeOf(reason); got != want {
			t.Errorf("codeOf(%q) = %q, want %q", reason, got, want)
		}
	}
}

// TestPrivateVMs leaves others' VMs out where the site wants that, and names them without user and command.
func TestPrivateVMs(t *testing.T) {
	f := newFarmhouse(t)
	c := f.agent.config()
	c.PrivateVMs = true
	f.agent.Reload(c)
	w := f.cloud()
	f.want(w)
	f.seesState(w, farm.VMRunning)
	other := Caller{UID: 4711}
	if seen := f.vmsFor(other); len(seen) != 0 {
		t.Errorf("an ordinary account sees %+v", seen)
	}
	if seen := f.vmsFor(admin); len(seen) != 1 {
		t.Errorf("root sees %d VMs", len(seen))
	}
	r := httptest.NewRequest("GET", "/v1/vms/"+w.ID, nil)
	r.SetPathValue("vm", w.ID)
	if err := f.agent.getVM(httptest.NewRecorder(), r, other); !farm.IsCode(err, farm.CodeNoVM) {
		t.Errorf("an ordinary account that knows its ID gets %v", err)
	}
	host := httptest.NewRecorder()
	if err := f.agent.getHost(host, httptest.NewRequest("GET", "/v1/host", nil), other); err != nil || strings.Contains(host.Body.String(), w.Owner) ||
		!strings.Contains(host.Body.String(), fleetName(w.ID)) {
		t.Errorf("%v; the host's view names the owner: %s", err, host.Body)
	}
}
