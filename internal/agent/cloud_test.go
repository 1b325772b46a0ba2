package agent

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/cloud"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/waittest"
	"github.com/grange-project/grange/internal/wire"
)

// cloud is what the server wants of one VM, as tests change it.
func (f *farmhouse) cloud() *fleet.WantedVM {
	id := api.NewID()
	return &fleet.WantedVM{ID: id, Name: "n" + id[:4], Project: "p", Owner: "alice", Hostname: "n" + id[:4],
		Power: string(farm.PowerOn), Image: "micro",
		Shape: fleet.Shape{CPUs: 1, Memory: uint64(128 * farm.MiB), Scratch: uint64(16 * farm.MiB)}}
}

func (f *farmhouse) want(vms ...*fleet.WantedVM) {
	var list fleet.WantedList
	for _, w := range vms {
		list.VMs = append(list.VMs, *w)
	}
	f.agent.Cloud.Want(list)
}

// sees waits until the server would see the VM so.
func (f *farmhouse) sees(what string, w *fleet.WantedVM, want func(o fleet.Observed) bool) fleet.Observed {
	f.Helper()
	var last fleet.Observed
	for limit := time.After(waittest.Limit); ; {
		vms, changed := f.agent.Cloud.Observed()
		last = fleet.Observed{}
		for _, o := range vms {
			if o.ID == w.ID {
				last = o
			}
		}
		if want(last) {
			return last
		}
		select {
		case <-changed:
		case <-limit:
			f.Fatalf("never seen: %s; last: %+v", what, last)
		}
	}
}

func (f *farmhouse) seesState(w *fleet.WantedVM, state farm.VMState) fleet.Observed {
	f.Helper()
	return f.sees(string(state), w, func(o fleet.Observed) bool {
		return o.State == string(state) &&
			(state != farm.VMRunning || o.Ready && o.Boots == w.Boots && o.Builds == w.Builds)
	})
}

// nothingLeft checks that no VM has left anything on the host, also for another agent.
func (f *farmhouse) nothingLeft() {
	f.Helper()
	if n := f.machines(); n != 0 {
		f.Errorf("%d machines are left", n)
	}
	for _, dir := range []string{"s/vm", "r/vm"} {
		if entries, err := os.ReadDir(filepath.Join(f.dir, dir)); err != nil || len(entries) > 0 {
			f.Errorf("%s holds %v, %v", dir, entries, err)
		}
	}
	room, holders, _ := f.agent.ledger.View(0)
	topology, reserve, _ := f.agent.ledger.Taken(nil)
	if !room.Equal(numa.NewRoom(topology, reserve, nil)) {
		f.Errorf("the ledger still has %v", holders)
	}
}

// mark writes into a VM's scratch disk, and marked reports whether it is still there.
func (f *farmhouse) mark(w *fleet.WantedVM) {
	f.Helper()
	if err := os.WriteFile(filepath.Join(f.agent.Cloud.Dir(w.ID), "scratch.raw"), []byte("mark"), 0o600); err != nil {
		f.Fatal(err)
	}
}

func (f *farmhouse) marked(w *fleet.WantedVM) bool {
	text, err := os.ReadFile(filepath.Join(f.agent.Cloud.Dir(w.ID), "scratch.raw"))
	return err == nil && strings.HasPrefix(string(text), "mark")
}

// TestCloudLife walks one VM through all that can be wanted of it.
func TestCloudLife(t *testing.T) {
	f := newFarmhouse(t)
	w := f.cloud()
	f.want(w)
	o := f.seesState(w, farm.VMRunning)
	if o.Plan == nil || len(o.Plan.VCPUs) != 1 || o.Digest == "" || f.machines() != 1 {
		t.Fatalf("%+v, %d machines", o, f.machines())
	}
	f.mark(w)
	vms := f.agent.Cloud.All()
	if view := vms[0].View(true); view.Purpose != "cloud" || view.Cloud.Project != "p" || view.State != "running" ||
		view.Command != "p/"+w.Name {
		t.Errorf("%+v", view)
	}
	if _, err := (routes{f.agent}).find(w.ID, admin); !farm.IsCode(err, cloud.CodeServersVM) {
		t.Errorf("root of the host may change it: %v", err)
	}
	w.Power = string(farm.PowerOff)
	f.want(w)
	o = f.seesState(w, farm.VMStopped)
	if f.machines() != 0 || o.Plan == nil || !f.marked(w) {
		t.Errorf("stopped: %+v, %d machines, scratch stays: %v", o, f.machines(), f.marked(w))
	}
	if _, holders, _ := f.agent.ledger.View(0); len(holders) != 1 {
		t.Errorf("a stopped VM keeps its claim; held are %v", holders)
	}
	w.Power = string(farm.PowerOn)
	f.want(w)
	f.seesState(w, farm.VMRunning)
	w.Boots++
	f.want(w)
	f.seesState(w, farm.VMRunning)
	w.Builds, w.Shape.Memory = w.Builds+1, uint64(192*farm.MiB)
	f.want(w)
	if o := f.seesState(w, farm.VMRunning); o.Plan.Cells[0].Memory != w.Shape.Memory || !f.marked(w) {
		t.Errorf("resized: %+v, scratch stays: %v", o.Plan, f.marked(w))
	}
	w.Builds++
	w.Fresh = w.Builds
	f.want(w)
	if f.seesState(w, farm.VMRunning); f.marked(w) {
		t.Error("rebuilt, with the old disk")
	}
	f.want() // of which nothing follows
	f.sees("what the list lacks", w, func(o fleet.Observed) bool { return o.State == string(farm.VMRunning) })
	w.Power = string(farm.PowerDeleted)
	f.want(w)
	f.seesState(w, farm.VMGone)
	f.nothingLeft()
	f.want()
	f.sees("nothing of it", w, func(o fleet.Observed) bool { return o.ID == "" })
}

// TestCloudOutlivesAgentAndHost: without any server.
func TestCloudOutlivesAgentAndHost(t *testing.T) {
	f := newFarmhouse(t)
	runs, stopped := f.cloud(), f.cloud()
	stopped.Power = string(farm.PowerOff)
	f.want(runs, stopped)
	f.seesState(runs, farm.VMRunning)
	f.seesState(stopped, farm.VMStopped)
	f.mark(runs)
	before := f.record(runs)
	f.close()
	f.open()
	f.seesState(runs, farm.VMRunning)
	f.seesState(stopped, farm.VMStopped)
	if f.machines() != 1 {
		t.Fatalf("%d machines after a restart of the agent", f.machines())
	}
	if after := f.record(runs); after.Failures != before.Failures ||
		!after.Plan.CPUs().Equal(before.Plan.CPUs()) {
		t.Errorf("%+v, was %+v", after, before)
	}
	f.close()
	f.host.End(runs.ID, "the host was switched off")
	f.booted()
	f.open()
	f.seesState(runs, farm.VMRunning)
	f.seesState(stopped, farm.VMStopped)
	if r := f.record(runs); r.Failures != 0 || !f.marked(runs) {
		t.Errorf("the host's boot counts as %d failures of the VM; its disk stays: %v", r.Failures, f.marked(runs))
	}
	for _, w := range []*fleet.WantedVM{runs, stopped} {
		w.Power = string(farm.PowerDeleted)
	}
	f.want(runs, stopped)
	f.seesState(runs, farm.VMGone)
	f.seesState(stopped, farm.VMGone)
	f.nothingLeft()
}

// vmFile is what tests read of a VM's file.
type vmFile struct {
	Wanted     fleet.WantedVM
	Plan       farm.Plan
	Boot, Halt string
	Failures   int
	Ran        bool
	In         *struct{ ID string }
}

// record is what the VM's file says.
func (f *farmhouse) record(w *fleet.WantedVM) (r vmFile) {
	f.Helper()
	text, err := os.ReadFile(filepath.Join(f.agent.Cloud.Dir(w.ID), "wanted.json"))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		f.Fatal(err)
	}
	return r
}

// rewrite changes one field in the files of those VMs whose file is to be changed.
func (f *farmhouse) rewrite(field string, value any, which func(r vmFile) bool) {
	f.Helper()
	paths, err := filepath.Glob(filepath.Join(f.dir, "s/vm/*/wanted.json"))
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		var r vmFile
		all := map[string]any{}
		text, err := os.ReadFile(path)
		if err == nil {
			err = errors.Join(json.Unmarshal(text, &r), json.Unmarshal(text, &all))
		}
		if err == nil && which(r) {
			all[field] = value
			text, _ = json.Marshal(all)
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			f.Fatal(err)
		}
	}
}

// booted has all records say that their VMs ran under an earlier boot of the host.
func (f *farmhouse) booted() {
	f.Helper()
	f.rewrite("Boot", "another", func(r vmFile) bool { return r.Boot != "" })
}

// TestCloudEndsByItself: a guest that powers off is left off until somebody wants it on again; what crashes is started
// again.
func TestCloudEndsByItself(t *testing.T) {
	f := newFarmhouse(t)
	w := f.cloud()
	f.want(w)
	f.seesState(w, farm.VMRunning)
	f.host.PowerOff(w.ID)
	if o := f.seesState(w, farm.VMStopped); !strings.Contains(o.Reason, "powered off") {
		t.Errorf("%+v", o)
	}
	f.close()
	f.open()
	f.seesState(w, farm.VMStopped)
	w.Boots++
	f.want(w)
	f.seesState(w, farm.VMRunning)
	f.host.End(w.ID, "killed")
	f.sees("started again", w, func(o fleet.Observed) bool {
		return o.State == string(farm.VMRunning) && o.Ready && strings.Contains(o.Reason, "vm-ended")
	})
	if r := f.record(w); r.Failures != 1 || r.Halt != "" {
		t.Errorf("%+v", r)
	}
	f.close()
	f.host.End(w.ID, "killed while nobody looked")
	f.open()
	f.seesState(w, farm.VMRunning)
	if r := f.record(w); r.Failures != 2 {
		t.Errorf("%+v", r)
	}
}

// TestCloudDeafGuest: one that does not power off is ended when its time is over, and at once where it is to be
// deleted.
func TestCloudDeafGuest(t *testing.T) {
	f := newFarmhouse(t)
	f.host.Deaf = func(hyper.Machine) bool { return true }
	f.guests.deaf = true
	w := f.cloud()
	f.want(w)
	f.seesState(w, farm.VMRunning)
	w.Power = string(farm.PowerOff)
	f.want(w)
	f.seesState(w, farm.VMStopped)
	if f.machines() != 0 {
		t.Error("it still runs")
	}
	f.agent.mu.Lock()
	f.agent.cfg.StopTimeout = time.Hour
	f.agent.mu.Unlock()
	w.Power = string(farm.PowerOn)
	f.want(w)
	f.seesState(w, farm.VMRunning)
	w.Power = string(farm.PowerOff)
	f.want(w)
	f.seesState(w, farm.VMStopping)
	w.Power = string(farm.PowerDeleted)
	f.want(w)
	f.seesState(w, farm.VMGone)
	f.nothingLeft()
}

// TestCloudLosesItsSockets: a VM that does not answer is not gone while its process is there.
func TestCloudLosesItsSockets(t *testing.T) {
	f := newFarmhouse(t)
	w := f.cloud()
	f.want(w)
	f.seesState(w, farm.VMRunning)
	f.close()
	if err := os.RemoveAll(filepath.Join(f.dir, "r/vm", cloud.Name(w.ID), "org.grange.control")); err != nil {
		t.Fatal(err)
	}
	f.open()
	f.seesNot(w)
	if f.machines() != 1 || f.record(w).Failures != 0 {
		t.Errorf("%d machines, %+v", f.machines(), f.record(w))
	}
	f.host.End(w.ID, "it has ended now")
	f.sees("started again", w, func(o fleet.Observed) bool { return o.Ready })
	f.close()
	if err := os.RemoveAll(filepath.Join(f.dir, "r/vm", cloud.Name(w.ID), "org.grange.control")); err != nil {
		t.Fatal(err)
	}
	f.open()
	f.seesNot(w)
	w.Power = string(farm.PowerDeleted) // which goes on without an answer
	f.want(w)
	f.seesState(w, farm.VMGone)
	f.nothingLeft()
}

// seesNot waits until the agent has noticed that nobody listens to it in the VM.
func (f *farmhouse) seesNot(w *fleet.WantedVM) {
	f.Helper()
	c := f.agent.Cloud.ByID(w.ID).Current().Control
	for limit := time.After(waittest.Limit); ; {
		now := c.Now(w.ID)
		if now.Gone {
			return
		}
		select {
		case <-now.Changed:
		case <-limit:
			f.Fatal("the agent never noticed")
		}
	}
}

// TestCloudWithoutHypervisor: unknown is not gone, and a deletion needs no daemon.
func TestCloudWithoutHypervisor(t *testing.T) {
	f := newFarmhouse(t)
	runs, later := f.cloud(), f.cloud()
	f.want(runs)
	f.seesState(runs, farm.VMRunning)
	f.host.Kill()
	f.want(runs, later)
	f.sees("it waits", later, func(o fleet.Observed) bool {
		return o.State == string(farm.VMStarting) && strings.HasPrefix(o.Reason, string(hyper.CodeAway))
	})
	f.seesState(runs, farm.VMRunning)
	f.host.Restart()
	f.seesState(later, farm.VMRunning)
	f.host.Kill()
	runs.Power, later.Power = string(farm.PowerDeleted), string(farm.PowerDeleted)
	f.want(runs, later)
	f.seesState(runs, farm.VMGone)
	f.seesState(later, farm.VMGone)
	f.host.Restart()
	f.nothingLeft()
}

// TestCloudUnknownDeleted: of a VM that never was here nothing is left, and that is said.
func TestCloudUnknownDeleted(t *testing.T) {
	f := newFarmhouse(t)
	w := f.cloud()
	w.Power = string(farm.PowerDeleted)
	f.want(w)
	f.seesState(w, farm.VMGone)
	f.nothingLeft()
	w.Power = string(farm.PowerOn) // and now it is wanted here after all
	f.want(w)
	f.seesState(w, farm.VMRunning)
}

// TestCloudEvicted: a VM that the list lacks runs on and tells its name, and goes when the server, which knows no more
// of it than its ID, says so.
func TestCloudEvicted(t *testing.T) {
	f := newFarmhouse(t)
	w := f.cloud()
	f.want(w)
	f.seesState(w, farm.VMRunning)
	f.want()
	f.sees("its name", w, func(o fleet.Observed) bool {
		return o.State == string(farm.VMRunning) && o.Name == w.Project+"/"+w.Name
	})
	f.close()
	f.open()
	f.want()
	f.sees("its name", w, func(o fleet.Observed) bool { return o.Name == w.Project+"/"+w.Name })
	f.want(&fleet.WantedVM{ID: w.ID, Power: string(farm.PowerDeleted)})
	f.seesState(w, farm.VMGone)
	f.want()
	f.sees("nothing of it", w, func(o fleet.Observed) bool { return o.ID == "" })
}

// TestCloudHalfMade: what a kill left half made is made again, and an unreadable record is left alone.
func TestCloudHalfMade(t *testing.T) {
	f := newFarmhouse(t)
	w, odd := f.cloud(), f.cloud()
	f.close()
	dir := f.agent.Cloud.Dir(w.ID)
	made, err := json.Marshal(map[string]any{"Version": 1, "Wanted": w})
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{dir + "/wanted.json": string(made), dir + "/scratch.raw": "half", dir + "/.wanted.json.1.new": "{",
		f.agent.Cloud.Dir(api.NewID()) + "/wanted.json.new": "{", f.agent.Cloud.Dir(odd.ID) + "/wanted.json": "{",
		f.agent.Cloud.Dir(odd.ID) + "/scratch.raw": "dear"} {
		os.Mkdir(filepath.Dir(path), 0o700)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.open()
	f.seesState(w, farm.VMRunning)
	if info, err := os.Stat(dir + "/scratch.raw"); err != nil || info.Size() != int64(w.Shape.Scratch) {
		t.Errorf("%v, %v", info, err)
	}
	entries, err := os.ReadDir(filepath.Join(f.dir, "s/vm"))
	if err != nil || len(entries) != 2 {
		t.Errorf("%v, %v: want the VM's directory and the one that cannot be read", entries, err)
	}
}

// TestCloudLosesItsRecord: a machine that runs is left alone, and reported.
func TestCloudLosesItsRecord(t *testing.T) {
	f := newFarmhouse(t)
	w := f.cloud()
	f.want(w)
	f.seesState(w, farm.VMRunning)
	f.close()
	if err := os.RemoveAll(f.agent.Cloud.Dir(w.ID)); err != nil {
		t.Fatal(err)
	}
	f.open()
	f.seesState(w, farm.VMRunning)
	if f.machines() != 1 || f.record(w).Wanted.Project != "p" {
		t.Errorf("%d machines, %+v", f.machines(), f.record(w))
	}
}

// TestFacts: what others hold is told, and the server's own VMs are not.
func TestFacts(t *testing.T) {
	f := newFarmhouse(t)
	f.configure(func(c *config.Agent) { c.Batch.Node = "rack7-03" })
	w := f.cloud()
	f.want(w)
	f.seesState(w, farm.VMRunning)
	facts, err := f.agent.Cloud.Facts(t.Context())
	if err != nil || facts.BatchNode != "rack7-03" ||
		len(facts.Taken) != 0 || facts.Instance == "" || facts.Boot != machine.BootID() ||
		facts.Now.IsZero() {
		t.Fatalf("%+v, %v", facts, err)
	}
	if !cmp.Equal(facts.Images, []string{"micro", f.seesState(w, farm.VMRunning).Digest}) {
		t.Errorf("images %v", facts.Images)
	}
	if _, err := wire.ParseFacts(facts); err != nil {
		t.Error(err)
	}
	job := f.mustAsk(f.caller(""), api.JobRequest{})
	job.until(api.EventRunning)
	_, changed := f.agent.Cloud.Observed()
	for limit := time.After(waittest.Limit); ; {
		if facts, err = f.agent.Cloud.Facts(t.Context()); err != nil || len(facts.Taken) == 1 {
			break
		}
		select {
		case <-changed:
			_, changed = f.agent.Cloud.Observed()
		case <-limit:
			t.Fatalf("nobody says that others hold anything: %+v", facts.Taken)
		}
	}
	job.done()
	f.want()
	f.sees("unlisted", w, func(o fleet.Observed) bool { return o.Name != "" })
	if facts := f.agent.Cloud.ReadFacts(); len(facts.Taken) != 1 {
		t.Errorf("a VM that the server knows nothing of holds what it holds: %+v", facts.Taken)
	}
}
