package agent

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/leases"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
)

// onNetwork has a host with the network "grid", whose leases are in a list, and which everybody may have.
func (f *farmhouse) onNetwork(list string) (path string) {
	f.Helper()
	path = filepath.Join(f.dir, "grid.leases")
	f.write(path, list)
	f.configure(func(c *config.Agent) {
		// A bridge would have to be there; the fake hypervisor makes no card for macvtap.
		c.Network = farm.HostNetworks{Macvtap: []string{"lo"}}
		c.Networks = map[string]config.SiteNetwork{"grid": {Name: "grid", On: "macvtap:lo", List: path,
			Domain: "example.org"}}
		c.Policy = []policy.Rule{{Name: "all", Networks: []string{"grid"}}}
	})
	return path
}

func (f *farmhouse) configure(change func(*config.Agent)) {
	f.agent.mu.Lock()
	defer f.agent.mu.Unlock()
	change(&f.agent.cfg)
}

func (f *farmhouse) write(path, text string) {
	f.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.Fatal(err)
	}
}

// refused asks for one more VM on the network, which cannot wait.
func (f *farmhouse) refused() (code string) {
	f.Helper()
	return f.mustAsk(f.caller(""), api.JobRequest{Network: "grid", NoWait: true}).failed()
}

func (f *farmhouse) network() (n api.Network) {
	f.Helper()
	r := httptest.NewRequest("GET", "/v1/networks/grid", nil)
	r.SetPathValue("name", "grid")
	w := httptest.NewRecorder()
	if err := (routes{f.agent}).getNetwork(w, r, admin); err != nil {
		f.Fatal(err)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &n); err != nil {
		f.Fatal(err)
	}
	return n
}

const (
	one = "wn1 52:54:00:00:00:01 10.1.0.11/24 2001:db8::11/64\n"
	two = "wn2 52:54:00:00:00:02 10.1.0.12/24\n"
)

// TestLeases: a lease is its VM's alone, whatever becomes of the list and of the agent, and is free again with the VM.
func TestLeases(t *testing.T) {
	f := newFarmhouse(t)
	path := f.onNetwork(one)
	first := f.mustAsk(f.caller(""), api.JobRequest{Network: "grid"})
	first.until(api.EventRunning)
	l := first.job.vm.recordNow().Lease
	if l == nil || l.Name != "wn1.example.org" || len(l.Addresses) != 2 {
		t.Fatalf("%+v", l)
	}
	if n := f.network(); n.Taken != 1 || n.Total != 1 || n.Leases[0].VM == "" || n.Warnings != nil {
		t.Errorf("%+v", n)
	}
	if code := f.refused(); code != string(leases.CodeNoAddress) {
		t.Errorf("a second VM: %s", code)
	}

	// The list is edited while the lease is taken, twice wrongly, and the agent starts anew meanwhile.
	f.write(path, "wn9 52:54:00:00:00:09 10.1.0.11/24\n")
	f.close()
	f.open()
	f.onNetwork("wn9 52:54:00:00:00:09 10.1.0.11/24\n")
	again := f.mustAsk(f.caller(""), api.JobRequest{ID: first.id, Network: "grid", Started: true})
	again.until(api.EventRunning)
	n := f.network()
	if n.Total != 2 || n.Taken != 1 || !n.Leases[1].Removed || len(n.Warnings) != 1 {
		t.Errorf("%+v", n)
	}
	if code := f.refused(); code != string(leases.CodeNoAddress) {
		t.Errorf("another entry of the same address: %s", code)
	}
	f.write(path, one+two)
	second := f.mustAsk(f.caller(""), api.JobRequest{Network: "grid"})
	second.until(api.EventRunning)
	if l := second.job.vm.recordNow().Lease; l.Name != "wn2.example.org" {
		t.Errorf("%+v", l)
	}
	f.write(path, "half a li") // as an editor leaves it: what was read last holds
	third := f.mustAsk(f.caller(""), api.JobRequest{Network: "grid"})
	third.until(api.EventWaiting)
	if n := f.network(); n.Total != 2 || len(n.Warnings) != 1 || !strings.Contains(n.Warnings[0], "line 1") {
		t.Errorf("%+v", n)
	}
	second.done()
	third.until(api.EventRunning)
	if l := third.job.vm.recordNow().Lease; l.Name != "wn2.example.org" {
		t.Errorf("%+v", l)
	}
	third.done()
	again.done()
	if n := f.network(); n.Taken != 0 {
		t.Errorf("%+v", n)
	}
}

// TestOneConfiguration: a request has its rules and its networks of one moment, whatever is reloaded meanwhile.
func TestOneConfiguration(t *testing.T) {
	f := newFarmhouse(t)
	f.onNetwork(one)
	asked, r := f.agent.requests(), &api.JobRequest{Network: "grid"}
	f.configure(func(c *config.Agent) { c.Networks, c.Policy, c.Shapes = nil, nil, nil })
	d, err := asked.decide(f.caller(""), r)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := asked.shape(r, f.caller(""), d); err != nil || s.Network != "macvtap:lo" {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := f.agent.requests().shape(r, f.caller(""), d); err == nil {
		t.Errorf("of the new configuration: %+v", s)
	}
}

// TestBandwidthRefused: where nothing holds a VM to a bandwidth it is refused, whoever says it.
func TestBandwidthRefused(t *testing.T) {
	f := newFarmhouse(t)
	f.onNetwork(one)
	f.configure(func(c *config.Agent) {
		s := c.DefaultShape
		s.Name, s.Bandwidth.In = "slow", 1e6
		c.Policy[0].Networks = []string{"grid", "user"}
		c.Shapes = map[string]farm.Shape{"slow": s}
	})
	for _, r := range []api.JobRequest{{BandwidthIn: 1e6}, {BandwidthOut: 1e6, Network: "user"}, {Shape: "slow"},
		{Shape: "slow", Network: "grid"}} {
		if _, err := f.ask(f.caller(""), r); !farm.IsCode(err, farm.CodeNotLimited) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if _, err := f.ask(f.caller(""), api.JobRequest{BandwidthIn: 1}); !farm.IsCode(err, farm.CodeBadShape) {
		t.Errorf("a bit a second: %v", err)
	}
	r := record{Shape: farm.Shape{Network: "bridge:br0", Bandwidth: farm.Bandwidth{In: 1e6, Out: 2e6}}}
	if vm := r.networkVM("a"); vm.Bandwidth != r.Shape.Bandwidth {
		t.Errorf("%+v", vm)
	}
}

// TestLeaseRefused: without a rule that names it, without a host that carries it, or with a guest that cannot take it.
func TestLeaseRefused(t *testing.T) {
	f := newFarmhouse(t)
	path := f.onNetwork("wn3 52:54:00:00:00:03\n")
	f.configure(func(c *config.Agent) { c.Policy = nil })
	if _, err := f.ask(f.caller(""), api.JobRequest{Network: "grid"}); !farm.IsCode(err, farm.CodePolicy) {
		t.Errorf("no rule: %v", err)
	}
	f.onNetwork("wn3 52:54:00:00:00:03\n")
	if code := f.mustAsk(f.caller(""), api.JobRequest{Network: "grid"}).failed(); code != "image-kind" {
		t.Errorf("DHCP in the micro image: %s", code)
	}
	f.guests.old = true
	f.write(path, one)
	if code := f.mustAsk(f.caller(""), api.JobRequest{Network: "grid"}).failed(); code != "old-guest" {
		t.Errorf("IPv6 in a guest of an earlier release: %s", code)
	}
	f.configure(func(c *config.Agent) { c.Network = farm.HostNetworks{} })
	if _, err := f.ask(f.caller(""), api.JobRequest{Network: "grid"}); !farm.IsCode(err, farm.CodeNotCarried) {
		t.Errorf("not carried: %v", err)
	}
}

// TestWorkersLease: a worker has the lease of its name.
func TestWorkersLease(t *testing.T) {
	f := newFarmhouse(t)
	f.onNetwork(one + two)
	f.configure(func(c *config.Agent) {
		c.Worker = config.Worker{Controller: "c", Network: "macvtap:lo", Site: "grid"}
	})
	image, err := f.agent.images.Get("micro")
	if err != nil {
		t.Fatal(err)
	}
	j, err := f.agent.workerDesk.begin(&api.WorkerRequest{Name: "wn2", Image: image.Digest}, "micro", f.caller(""))
	if err != nil {
		t.Fatal(err)
	}
	f.agent.jobs.Go(j.run)
	r := j.vm.recordNow()
	if r.Worker.Address.String() != "10.1.0.12/24" || r.networkVM("x").MAC != "52:54:00:00:00:02" {
		t.Errorf("%+v", r.Worker)
	}
	v4, v6 := r.Lease.Address()
	if text := string(r.Lease.Hosts("wn2")); v6 != nil || v4.CIDR != "10.1.0.12/24" ||
		!strings.HasSuffix(text, fmt.Sprintln("10.1.0.12 wn2.example.org wn2")) {
		t.Errorf("%+v, %+v, %q", v4, v6, text)
	}
	j.cancel(errStopped)
	<-j.over
}
