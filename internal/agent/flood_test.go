package agent

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
)

// TestFlood: a burst is none, what goes on is one, once; it ends, and another one is another one.
func TestFlood(t *testing.T) {
	notices, now := 0, time.Now()
	f := &flood{notice: func() { notices++ }}
	waitFor := func(d time.Duration) {
		for end := now.Add(d); now.Before(end); now = now.Add(250 * time.Millisecond) {
			f.waited(now)
		}
	}
	shows := func(when string, on bool, want int) {
		t.Helper()
		if _, is := f.goesOn(now); is != on || notices != want {
			t.Errorf("%s: flood %v, %d notices; want %v, %d", when, is, notices, on, want)
		}
	}
	shows("at first", false, 0)
	waitFor(floodAfter / 2)
	shows("a burst", false, 0)
	now = now.Add(floodOver + time.Second)
	waitFor(floodAfter / 2)
	shows("another burst", false, 0)
	began := now
	waitFor(time.Minute)
	shows("a flood", true, 1)
	if since, _ := f.goesOn(now); since.After(began) {
		t.Errorf("the flood is since %v, which is after %v", since, began)
	}
	now = now.Add(floodOver + time.Second)
	shows("its end", false, 1)
	waitFor(time.Minute)
	shows("the next one", true, 2)
	if f.count() != 20+20+240+240 {
		t.Errorf("%d waits", f.count())
	}
}

// TestFloodIsShown: by the VM, by the host, and to whoever waits for the job.
func TestFloodIsShown(t *testing.T) {
	f := newFarmhouse(t)
	x := f.mustAsk(f.caller(""), api.JobRequest{})
	x.until(api.EventRunning)
	flood := &x.job.vm.current().control.flood
	for at := time.Now().Add(-2 * floodAfter); at.Before(time.Now()); at = at.Add(time.Second) {
		flood.waited(at)
	}
	x.until(api.EventWarning)
	vms := f.vmsFor(admin)
	if len(vms) != 1 || vms[0].Flooding == nil || vms[0].FloodWaits == 0 {
		t.Errorf("the VM's view has no flood: %+v", vms)
	}
	var host api.Host
	w := httptest.NewRecorder()
	if err := f.agent.getHost(w, httptest.NewRequest("GET", "/v1/host", nil), admin); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &host); err != nil || host.Flooding != 1 {
		t.Errorf("%v; the host's view counts %d floods", err, host.Flooding)
	}
}
