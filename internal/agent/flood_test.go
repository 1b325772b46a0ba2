package agent

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/machine"
)

// TestFloodIsShown: by the VM, by the host, and to whoever waits for the job.
func TestFloodIsShown(t *testing.T) {
	f := newFarmhouse(t)
	x := f.mustAsk(f.caller(""), api.JobRequest{})
	x.until(api.EventRunning)
	flood := &x.job.vm.current().Control.Flood
	for at := time.Now().Add(-2 * machine.FloodAfter); at.Before(time.Now()); at = at.Add(time.Second) {
		flood.Waited(at)
	}
	x.until(api.EventWarning)
	vms := f.vmsFor(admin)
	if len(vms) != 1 || vms[0].Flooding == nil || vms[0].FloodWaits == 0 {
		t.Errorf("the VM's view has no flood: %+v", vms)
	}
	var host api.Host
	w := httptest.NewRecorder()
	if err := (routes{f.agent}).getHost(w, httptest.NewRequest("GET", "/v1/host", nil), admin); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &host); err != nil || host.Flooding != 1 {
		t.Errorf("%v; the host's view counts %d floods", err, host.Flooding)
	}
}
