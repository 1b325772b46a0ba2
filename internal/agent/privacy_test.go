package agent

import (
	"encoding/json"
	"maps"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/cloud"
	"github.com/grange-project/grange/internal/agent/leases"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/breaker"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/ledger"
	"github.com/grange-project/grange/internal/numa"
)

// vmsFor is what GET /v1/vms answers to a caller.
func (f *farmhouse) vmsFor(c Caller) (vms []api.VM) {
	f.Helper()
	w := httptest.NewRecorder()
	if err := (routes{f.agent}).getVMs(w, httptest.NewRequest("GET", "/v1/vms", nil), c); err != nil {
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
	v := f.agent.Cloud.ByID(w.ID)
	const secret = "password: hunter2"
	v.NoteThat(string(cloud.CodeVMEnded) + ": " +
		"the VM ended in a kernel panic (" + secret + "); the end of its console:\n  " + secret)
	f.sees("the note", w, func(o fleet.Observed) bool { return strings.Contains(o.Reason, secret) })
	other := Caller{UID: 4711}
	seen := f.vmsFor(other)
	if len(seen) != 1 || seen[0].Cloud.Reason != string(cloud.CodeVMEnded) {
		t.Errorf("an ordinary account sees %+v", seen)
	}
	if text, _ := json.Marshal(seen); strings.Contains(string(text), "hunter2") {
		t.Errorf("an ordinary account sees the console: %s", text)
	}
	if root := f.vmsFor(admin); len(root) != 1 || !strings.Contains(root[0].Cloud.Reason, secret) {
		t.Errorf("root sees %+v", root)
	}
}

// TestPrivateVMs leaves others' VMs out where the site wants that, and names them nowhere.
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
	if err := (routes{f.agent}).getVM(httptest.NewRecorder(), r, other); !farm.IsCode(err, farm.CodeNoVM) {
		t.Errorf("an ordinary account that knows its ID gets %v", err)
	}
	host := httptest.NewRecorder()
	if err := (routes{f.agent}).getHost(host, httptest.NewRequest("GET", "/v1/host", nil), other); err != nil ||
		strings.Contains(host.Body.String(), w.Owner) || strings.Contains(host.Body.String(), cloud.Name(w.ID)) {
		t.Errorf("%v; the host's view names the owner or the VM: %s", err, host.Body)
	}
}

// TestPrivateRoutes asks every route that reads, as two accounts: what is of another account is in no answer where VMs
// are private, and is in some where they are not.
func TestPrivateRoutes(t *testing.T) {
	f := newFarmhouse(t)
	owner, other := f.caller("7"), f.caller("")
	owner.UID, other.UID = 4711, 4712
	job := f.mustAsk(owner, api.JobRequest{})
	vm := job.until(api.EventRunning)
	secrets := f.populate()
	secrets["its VM"] = vm.Name
	secrets["the job"], secrets["its batch job"] = job.id, `"slurm/7"`
	for _, private := range []bool{false, true} {
		c := f.agent.config()
		c.PrivateVMs = private
		f.agent.Reload(c)
		seen := f.readAll(other, vm.ID)
		for what, secret := range secrets {
			if strings.Contains(seen, secret) == private {
				t.Errorf("private_vms %v: another account sees %s: %v", private, what, !private)
			}
		}
		for what, text := range f.refusals(other) {
			for _, secret := range []string{vm.Name, "slurm/"} {
				if strings.Contains(text, secret) == private {
					t.Errorf("private_vms %v: another account is told by %s: %s", private, what, text)
				}
			}
		}
		if _, err := f.agent.lookUp("feedbeef", other); farm.IsKind(err, farm.Invalid) == private {
			t.Errorf("private_vms %v: what others' VMs could be called is answered with %v", private, err)
		}
		if seen := f.readAll(owner, vm.ID); !strings.Contains(seen, `":"`+vm.Name+`"`) {
			t.Errorf("private_vms %v: its owner does not see which CPUs the VM has", private)
		}
		if !strings.Contains(f.readAll(owner, vm.ID), vm.ID) {
			t.Errorf("private_vms %v: its owner does not see the VM", private)
		}
		for what, secret := range secrets {
			if !strings.Contains(f.readAll(admin, vm.ID), secret) {
				t.Errorf("private_vms %v: root does not see %s", private, what)
			}
		}
	}
}

// populate has a claim and a worker on the host. What to look for, by what it is.
func (f *farmhouse) populate() map[string]string {
	f.Helper()
	if err := f.agent.claims.write(&metalClaim{Claim: api.Claim{Key: "slurm/424242", CPUs: "0"},
		Boot: machine.BootID()}); err != nil {
		f.Fatal(err)
	}
	f.agent.ledger.ClaimMetal("slurm/515151", farm.NewCPUSet(), 1, farm.MiB)
	f.host.Stick("stuck", "grange-stuck77")
	for i := range breaker.Defaults.Failures {
		ticket, err := f.agent.breakers.set.Admit(time.Now(), breaker.Start{Image: "broken", User: []string{"eva",
			"max"}[i%2]})
		if err != nil {
			f.Fatal(err)
		}
		f.agent.breakers.set.Failed(time.Now(), ticket, breaker.Unclear, "grange-eva7 has no kernel")
	}
	f.onNetwork(one)
	j := newJob(f.agent, api.NewID(), admin)
	j.record = record{Version: recordVersion, Job: j.id, Name: vmName(j.id), User: "slurm", Command: "worker vwn77",
		Worker: &workerRecord{Name: "vwn77"}, Lease: &leases.Lease{Network: "grid"}}
	v := newVM(j)
	f.agent.mu.Lock()
	f.agent.vms[v.id] = v
	for _, id := range []string{"feedbeef-1", "feedbeef-2"} {
		j := newJob(f.agent, id, admin)
		j.record = record{Version: recordVersion, Job: id, Name: id, VM: id, User: "slurm"}
		f.agent.vms[id] = newVM(j)
	}
	f.agent.mu.Unlock()
	return map[string]string{"the claim": "slurm/424242", "who holds a CPU": "slurm/515151",
		"a VM that is stuck": "grange-stuck77", "how the last VM failed": "grange-eva7", "the worker": `"name":"vwn77"`,
		"the worker's VM": `"user":"slurm"`,
		"who has a lease": `"vm":"` + j.record.Name + `"`}
}

// refusals are what a caller is told who finds no room, who is beside others' VMs, and whose image backs off.
func (f *farmhouse) refusals(c Caller) map[string]string {
	f.Helper()
	found := map[string]string{}
	f.agent.ledger.SetCharge("refused", ledger.Charge{Owner: c.User()})
	_, err := f.agent.ledger.Claim(f.Context(), "refused", "x", request(f.agent.machines.AllCPUs().Len(),
		f.agent.machines.AllCPUs().String()), true, quiet)
	if !farm.IsKind(err, farm.NoCapacity) {
		f.Fatal("a VM got all CPUs, or was refused for something else:", err)
	}
	found["a lack of room"] = err.Error()
	err = f.agent.ledger.CheckCloud("refused", "", ledger.Charge{}, func(numa.Room, farm.CPUSet) (farm.Plan, error) {
		return farm.Plan{}, &farm.Error{Kind: farm.NoCapacity, Message: "no room"}
	})
	found["a lack of room for a cloud VM"] = err.Error()
	return found
}

// readAll is what all routes that read answer to a caller who knows the VM's ID.
func (f *farmhouse) readAll(c Caller, vm string) string {
	f.Helper()
	var all strings.Builder
	actions := (routes{f.agent}).actions()
	maps.Copy(actions, newImageRoutes(f.agent).actions())
	for pattern, do := range actions {
		method, path, _ := strings.Cut(pattern, " ")
		// the caller's own, and refused to others; or a name of the site's, the same for all
		if method != "GET" || path == "/v1/grant" || path == "/v1/publish/{name}" || strings.HasSuffix(path, "/console") {
			continue
		}
		r := httptest.NewRequest(method, path, nil)
		r.SetPathValue("vm", vm)
		r.SetPathValue("name", "grid")
		r.SetPathValue("ref", "micro")
		w := httptest.NewRecorder()
		if err := do(w, r, c); err != nil && !farm.IsCode(err, farm.CodeNoVM) {
			f.Errorf("%s: %v", pattern, err)
		}
		all.WriteString(w.Body.String())
	}
	return all.String()
}
