package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/cloud"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper/fake"
	"github.com/grange-project/grange/internal/ledger"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

// claimAgent is an agent that can claim, on a host of two sockets with 32 threads and 64 GiB or so.
func claimAgent(state string) *Agent {
	t := topologytest.CERN2650v2()
	a := joined(&Agent{ledger: ledger.New(t, numa.Reserve{}, ledger.Host{}), topo: t,
		hyper: fakeHyper{fake.NewHost().Open()}, cfg: config.Agent{StateDir: state},
		log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	a.machines = machine.NewHost(machine.Options{Ledger: a.ledger, Log: a.log, Config: a.config, Topology: a.topology})
	a.Cloud = cloud.New(cloud.Options{Machines: a.machines, Settings: a.settings.take})
	return a
}

var admin = Caller{UID: uint32(os.Getuid())}

func request(cpus int, allowed string) numa.Request {
	set, err := farm.ParseCPUSet(allowed)
	if err != nil {
		panic(err)
	}
	return numa.Request{VCPUs: cpus, Memory: farm.GiB, Allowed: set}
}

func quiet(string) {}

func (a *Agent) claimNow(t *testing.T, c api.Claim) (api.Claim, error) {
	t.Helper()
	body, _ := json.Marshal(c)
	w := httptest.NewRecorder()
	err := routes{a}.postClaim(w, httptest.NewRequest("POST", "/v1/claims", bytes.NewReader(body)), admin)
	var out api.Claim
	if err == nil {
		err = json.Unmarshal(w.Body.Bytes(), &out)
	}
	return out, err
}

func (a *Agent) mustClaim(t *testing.T, c api.Claim) api.Claim {
	t.Helper()
	out, err := a.claimNow(t, c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (a *Agent) free() farm.CPUSet {
	room, _, _ := a.ledger.View(0)
	return room.Free
}

func wantFree(t *testing.T, a *Agent, what, cpus string) {
	t.Helper()
	if got := a.free().String(); got != cpus {
		t.Errorf("%s: CPUs %s are free, want %s", what, got, cpus)
	}
}

func TestClaimsKeepVMsAway(t *testing.T) {
	a := claimAgent(t.TempDir())
	before := a.free()
	got := a.mustClaim(t, api.Claim{Key: "slurm/12_3", CPUs: "0-3", Memory: uint64(8 * farm.GiB)})
	if got.CPUs != "0-3" || got.Conflicts != nil {
		t.Errorf("%+v", got)
	}
	if !a.free().Equal(before.Minus(farm.NewCPUSet(0, 1, 2, 3))) {
		t.Errorf("free are %v", a.free())
	}
	room, holders, _ := a.ledger.View(0)
	if holders[2] != "slurm/12_3" {
		t.Errorf("CPU 2 is held by %q", holders[2])
	}
	empty, _, _ := ledger.New(a.topo, numa.Reserve{}, ledger.Host{}).View(0)
	var taken farm.Bytes
	for id, n := range empty.Nodes {
		taken += n.Memory - room.Nodes[id].Memory
	}
	if taken != 8*farm.GiB {
		t.Errorf("%v of memory are taken", taken)
	}
	if _, err := a.ledger.Claim(t.Context(), "vm", "grange-vm (alice: x)", request(2, "0-3"), true,
		quiet); !farm.IsKind(err, farm.NoCapacity) || !strings.Contains(err.Error(), "slurm/12_3 on the host") {
		t.Errorf("a VM got the CPUs of a job on the host: %v", err)
	}
	if got := a.mustClaim(t, api.Claim{Key: "slurm/12_3", CPUs: "4"}); got.CPUs != "4" ||
		!a.free().Equal(before.Minus(farm.NewCPUSet(4))) {
		t.Errorf("claimed anew: %+v, free %v", got, a.free())
	}
	r := httptest.NewRequest("DELETE", "/v1/claims/slurm/12_3", nil)
	r.SetPathValue("key", "slurm/12_3")
	for range 2 {
		if err := (routes{a}).deleteClaim(httptest.NewRecorder(), r, admin); err != nil || !a.free().Equal(before) {
			t.Errorf("released: %v, free %v", err, a.free())
		}
	}
}

func TestClaimCounts(t *testing.T) {
	a := claimAgent(t.TempDir())
	got := a.mustClaim(t, api.Claim{Key: "gridengine/7", Count: 4})
	cpus, _ := farm.ParseCPUSet(got.CPUs)
	if cpus.Len() != 4 || got.Conflicts != nil {
		t.Fatalf("%+v", got)
	}
	for _, c := range a.topo.Cores {
		if n := c.Threads.And(cpus).Len(); n != 0 && n != c.Threads.Len() {
			t.Errorf("core %v is torn by claim %v", c.Threads, cpus)
		}
	}
	got = a.mustClaim(t, api.Claim{Key: "gridengine/8", Count: 31})
	if len(got.Conflicts) != 1 || !a.free().Empty() {
		t.Errorf("more than there is: %+v; free %v", got, a.free())
	}
}

// TestClaimConflicts: the batch system has decided; it is told, and counts.
func TestClaimConflicts(t *testing.T) {
	a := claimAgent(t.TempDir())
	plan, err := a.ledger.Claim(t.Context(), "vm", "grange-vm (alice: x)", request(2, "0-1"), true, quiet)
	if err != nil {
		t.Fatal(err)
	}
	got := a.mustClaim(t, api.Claim{Key: "slurm/1", CPUs: "1-2", Memory: uint64(farm.TiB)})
	if len(got.Conflicts) != 2 || !strings.Contains(got.Conflicts[0], "CPUs 1 are held by grange-vm (alice: x)") ||
		!strings.Contains(got.Conflicts[1], "memory") {
		t.Errorf("conflicts %q", got.Conflicts)
	}
	if both := a.free().And(farm.NewCPUSet(0, 1, 2)); !both.Empty() {
		t.Errorf("CPUs %v are free", both)
	}
	if plans, _ := a.ledger.Neighbours("other"); len(plans) != 1 {
		t.Errorf("%d neighbours of a VM; jobs on the host are none", len(plans))
	}
	a.ledger.Release("vm")
	if !a.free().Has(0) || a.free().Has(1) {
		t.Errorf("free are %v when VM %v has gone", a.free(), plan.Held())
	}
}

// TestClaimOfTheVMsOwnJob: a prolog claims for every job; the one that then asks for a VM gets it on what was claimed
// for it.
func TestClaimOfTheVMsOwnJob(t *testing.T) {
	a := claimAgent(t.TempDir())
	empty, _, _ := a.ledger.View(0)
	a.mustClaim(t, api.Claim{Key: "slurm/5", CPUs: "0-1", Memory: uint64(farm.GiB)})
	a.ledger.SetBatchJob("vm", "slurm/5")
	if _, err := a.ledger.Claim(t.Context(), "vm", "grange-vm (alice: x)", request(2, "0-1"), true, quiet); err != nil {
		t.Fatal(err)
	}
	room, holders, _ := a.ledger.View(0)
	var taken farm.Bytes
	for id, n := range empty.Nodes {
		taken += n.Memory - room.Nodes[id].Memory
	}
	if taken != farm.GiB || holders[0] != "grange-vm" || !a.free().Equal(empty.Free.Minus(farm.NewCPUSet(0, 1))) {
		t.Errorf("memory %v is taken, CPU 0 is held by %q, free are %v", taken, holders[0], a.free())
	}
	a.ledger.Release("vm")
	if _, err := a.ledger.Claim(t.Context(), "vm", "x", request(1, "0-1"), true, quiet); !farm.IsKind(err,
		farm.NoCapacity) {
		t.Errorf("another VM of the same name got it: %v", err)
	}
}

func TestClaimsSurviveAgents(t *testing.T) {
	state := t.TempDir()
	a := claimAgent(state)
	a.mustClaim(t, api.Claim{Key: "slurm/1", CPUs: "0"})
	ends := exec.Command("/bin/cat")
	stdin, err := ends.StdinPipe()
	if err := errors.Join(err, ends.Start()); err != nil {
		t.Fatal(err)
	}
	a.mustClaim(t, api.Claim{Key: "slurm/2", CPUs: "1", Process: ends.Process.Pid})
	a.mustClaim(t, api.Claim{Key: "slurm/3", CPUs: "2", Cgroup: "no/such/group/yet"})
	if err := os.WriteFile(filepath.Join(state, "claims", "slurm%2F9.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := a.free()
	next := func() *Agent {
		b := claimAgent(state)
		if err := b.claims.load(); err != nil {
			t.Fatal(err)
		}
		return b
	}
	wantFree(t, next(), "a new agent", all.String())
	stdin.Close()
	ends.Wait()
	a.claims.dropStaleClaims()
	wantFree(t, a, "when its process ended", all.Or(farm.NewCPUSet(1)).String())
	w := httptest.NewRecorder()
	if err := (routes{next()}).getClaims(w, nil, Caller{UID: 65534}); err != nil || strings.Count(w.Body.String(), `"key"`) != 2 {
		t.Errorf("%v %s", err, w.Body)
	}
	k := metalClaim{Claim: api.Claim{Key: "slurm/1"}, Boot: "another"}
	if err := a.claims.write(&k); err != nil {
		t.Fatal(err)
	}
	wantFree(t, next(), "after a boot", all.Or(farm.NewCPUSet(0, 1)).String())
	for _, c := range []struct {
		group string
		seen  bool
		stale bool
	}{{"", true, false}, {"never/was", false, false}, {"never/was", true, true}, {".", true, false}} {
		k := metalClaim{Claim: api.Claim{Cgroup: c.group}, Boot: machine.BootID(), Seen: c.seen}
		if reason, _ := k.stale(); (reason != "") != c.stale {
			t.Errorf("%+v: %q", c, reason)
		}
	}
}

func TestClaimsRefused(t *testing.T) {
	a := claimAgent(t.TempDir())
	for name, c := range map[string]api.Claim{
		"no key":                 {CPUs: "0"},
		"a key that climbs":      {Key: "slurm/../../x", CPUs: "0"},
		"nothing":                {Key: "slurm/1"},
		"a list and a number":    {Key: "slurm/1", CPUs: "0", Count: 1},
		"a CPU that is not here": {Key: "slurm/1", CPUs: "4000"},
		"no list":                {Key: "slurm/1", CPUs: "a-b"},
		"less than none":         {Key: "slurm/1", Count: -1},
		"all memory there is":    {Key: "slurm/1", Memory: 1 << 63},
		"a process that is gone": {Key: "slurm/1", CPUs: "0", Process: 1<<22 + 1},
		"a group that climbs":    {Key: "slurm/1", CPUs: "0", Cgroup: "../x"},
	} {
		if _, err := a.claimNow(t, c); !farm.IsKind(err, farm.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, do := range []action{routes{a}.postClaim, routes{a}.deleteClaim} {
		if err := do(nil, nil, Caller{UID: 65534}); !farm.IsKind(err, farm.Denied) {
			t.Errorf("anybody may claim: %v", err)
		}
	}
	if !a.free().Equal(a.topo.Online) {
		t.Errorf("free are %v", a.free())
	}
}
