package agent

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/agent/machine"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/numa"
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
	f.agent.Want(list)
}

// sees waits until the server would see the VM so.
func (f *farmhouse) sees(what string, w *fleet.WantedVM, want func(o fleet.Observed) bool) fleet.Observed {
	f.Helper()
	var last fleet.Observed
	for limit := time.After(20 * time.Second); ; {
		vms, changed := f.agent.Observed()
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
	room, holders, _ := f.agent.ledger.View()
	topology, reserve, _ := f.agent.ledger.Taken(nil)
	if !room.Equal(numa.NewRoom(topology, reserve, nil)) {
		f.Errorf("the ledger still has %v", holders)
	}
}

// mark writes into a VM's scratch disk, and marked reports whether it is still there.
func (f *farmhouse) mark(w *fleet.WantedVM) {
	f.Helper()
	if err := os.WriteFile(filepath.Join(f.agent.fleetDir(w.ID), "scratch.raw"), []byte("mark"), 0o600); err != nil {
		f.Fatal(err)
	}
}

func (f *farmhouse) marked(w *fleet.WantedVM) bool {
	text, err := os.ReadFile(filepath.Join(f.agent.fleetDir(w.ID), "scratch.raw"))
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
	vms := f.agent.allFleet()
	if view := vms[0].view(admin); view.Purpose != "cloud" || view.Cloud.Project != "p" || view.State != "running" ||
		view.Command != "p/"+w.Name {
		t.Errorf("%+v", view)
	}
	if _, err := f.agent.find(w.ID, admin); !farm.IsCode(err, CodeServersVM) {
		t.Errorf("root of the host may change it: %v", err)
	}
	w.Power = string(farm.PowerOff)
	f.want(w)
	o = f.seesState(w, farm.VMStopped)
	if f.machines() != 0 || o.Plan == nil || !f.marked(w) {
		t.Errorf("stopped: %+v, %d machines, scratch stays: %v", o, f.machines(), f.marked(w))
	}
	if _, holders, _ := f.agent.ledger.View(); len(holders) != 1 {
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
	before := f.agent.allFleet()[0].recordNow()
	f.close()
	f.open()
	f.seesState(runs, farm.VMRunning)
	f.seesState(stopped, farm.VMStopped)
	if f.machines() != 1 {
		t.Fatalf("%d machines after a restart of the agent", f.machines())
	}
	if after := f.agent.allFleet()[0].recordNow(); after.Failures != before.Failures ||
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

// record is what the VM's file says.
func (f *farmhouse) record(w *fleet.WantedVM) fleetRecord {
	f.Helper()
	var r fleetRecord
	text, err := os.ReadFile(filepath.Join(f.agent.fleetDir(w.ID), fleetFile))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		f.Fatal(err)
	}
	return r
}

// booted has all records say that their VMs ran under an earlier boot of the host.
func (f *farmhouse) booted() {
	f.Helper()
	for _, r := range f.agent.readFleet() {
		if r.Boot != "" {
			r.Boot = "another"
			if err := f.agent.writeFleet(r); err != nil {
				f.Fatal(err)
			}
		}
	}
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
	if r := f.record(w); r.Failures != 1 || r.Halt != haltNone {
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
	if err := os.RemoveAll(filepath.Join(f.dir, "r/vm", fleetName(w.ID), "org.grange.control")); err != nil {
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
	if err := os.RemoveAll(filepath.Join(f.dir, "r/vm", fleetName(w.ID), "org.grange.control")); err != nil {
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
	c := f.agent.fleetByID(w.ID).current().Control
	for limit := time.After(20 * time.Second); ; {
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
	dir := f.agent.fleetDir(w.ID)
	if err := f.agent.writeFleet(fleetRecord{Version: 1, Wanted: *w}); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{dir + "/scratch.raw": "half", dir + "/.wanted.json.1.new": "{",
		f.agent.fleetDir(api.NewID()) + "/wanted.json.new": "{", f.agent.fleetDir(odd.ID) + "/wanted.json": "{",
		f.agent.fleetDir(odd.ID) + "/scratch.raw": "dear"} {
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
	if err := os.RemoveAll(f.agent.fleetDir(w.ID)); err != nil {
		t.Fatal(err)
	}
	f.open()
	f.seesState(w, farm.VMRunning)
	if f.machines() != 1 || f.record(w).Wanted.Project != "p" {
		t.Errorf("%d machines, %+v", f.machines(), f.record(w))
	}
}

// TestCloudNext is what is done next, as a table.
func TestCloudNext(t *testing.T) {
	claimed := farm.Plan{VCPUs: []farm.CPUSet{farm.NewCPUSet(0)}}
	one := 1
	for _, c := range []struct {
		name          string
		r             fleetRecord
		power         farm.Power
		boots, builds int
		fresh         int
		off, on       fleetStep // when no machine runs, and when one does
	}{
		{"new", fleetRecord{}, farm.PowerOn, 0, 0, 0, stepBuild, stepStop},
		{"new, to be off", fleetRecord{}, farm.PowerOff, 0, 0, 0, stepBuild, stepStop},
		{"refused", fleetRecord{Halt: haltFailed}, farm.PowerOn, 0, 0, 0, stepNone, stepNone},
		{"refused, deleted", fleetRecord{Halt: haltFailed}, farm.PowerDeleted, 0, 0, 0, stepDelete, stepDelete},
		{"claimed", fleetRecord{Plan: claimed, Digest: "x"}, farm.PowerOn, 0, 0, 0, stepStart, stepNone},
		{"to be off", fleetRecord{Plan: claimed, Digest: "x"}, farm.PowerOff, 0, 0, 0, stepNone, stepStop},
		{"to restart", fleetRecord{Plan: claimed, Digest: "x"}, farm.PowerOn, 1, 0, 0, stepStart, stepStop},
		{"restarted while off", fleetRecord{Plan: claimed, Digest: "x"}, farm.PowerOff, 1, 0, 0, stepNone, stepStop},
		{"powered off", fleetRecord{Plan: claimed, Digest: "x", Halt: haltOff}, farm.PowerOn, 0, 0, 0,
			stepNone, stepNone},
		{"to resize", fleetRecord{Plan: claimed, Digest: "x"}, farm.PowerOn, 0, 1, 0, stepBuild, stepBuild},
		{"to rebuild", fleetRecord{Plan: claimed, Digest: "x"}, farm.PowerOn, 0, 1, 1, stepBuild, stepStop},
		{"resize refused", fleetRecord{Plan: claimed, Digest: "x", Refused: &one}, farm.PowerOn, 0, 1, 0,
			stepStart, stepNone},
		{"and asked again", fleetRecord{Plan: claimed, Digest: "x", Refused: &one}, farm.PowerOn, 0, 2, 0,
			stepBuild, stepBuild},
		{"without its job", fleetRecord{Plan: claimed, Digest: "x", Job: "slurm/7"}, farm.PowerOff, 0, 0, 0,
			stepYield, stepStop},
		{"yielded", fleetRecord{Plan: claimed, Digest: "x", Yielded: true}, farm.PowerOff, 0, 0, 0, stepNone, stepStop},
		{"yielded, and wanted without a job", fleetRecord{Plan: claimed, Digest: "x", Yielded: true}, farm.PowerOn, 0,
			0, 0, stepBuild, stepNone},
	} {
		c.r.Wanted = fleet.WantedVM{Power: string(c.power), Boots: c.boots, Builds: c.builds, Fresh: c.fresh}
		if off, on := c.r.next(false), c.r.next(true); off != c.off || on != c.on {
			t.Errorf("%s: %q when it is off and %q when it runs, want %q and %q", c.name, off, on, c.off, c.on)
		}
	}
}

// TestCloudCrashes: the pauses double, and in the end nobody tries again.
func TestCloudCrashes(t *testing.T) {
	v := newFleetVM(&Agent{}, api.NewID())
	var r fleetRecord
	for n := 1; n <= maxFailures; n++ {
		v.noteEnd(&r, hyper.Failed, time.Second, "why")
		if pause := time.Until(v.until); r.Halt != haltNone || r.Failures != n || pause > firstPause<<(n-1) ||
			pause < firstPause<<(n-1)-time.Second {
			t.Fatalf("%d: %+v, pause %v", n, r, pause)
		}
	}
	v.noteEnd(&r, "", time.Second, "why")
	if r.Halt != haltFailed || r.Reason != "why" {
		t.Errorf("%+v", r)
	}
	if r = (fleetRecord{Failures: maxFailures}); true {
		v.noteEnd(&r, hyper.Failed, calmAfter+1, "why")
	}
	if r.Halt != haltNone || r.Failures != 1 {
		t.Errorf("after a calm life: %+v", r)
	}
}

// TestFacts: what others hold is told, and the server's own VMs are not.
func TestFacts(t *testing.T) {
	f := newFarmhouse(t)
	w := f.cloud()
	f.want(w)
	f.seesState(w, farm.VMRunning)
	facts, err := f.agent.Facts(t.Context())
	if err != nil || len(facts.Taken) != 0 || facts.Instance == "" || facts.Boot != machine.BootID() ||
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
	_, changed := f.agent.Observed()
	for limit := time.After(20 * time.Second); ; {
		if facts, err = f.agent.Facts(t.Context()); err != nil || len(facts.Taken) == 1 {
			break
		}
		select {
		case <-changed:
			_, changed = f.agent.Observed()
		case <-limit:
			t.Fatalf("nobody says that others hold anything: %+v", facts.Taken)
		}
	}
	job.done()
	f.want()
	f.sees("unlisted", w, func(o fleet.Observed) bool { _, gone := f.agent.fleetByID(w.ID).newest(); return gone })
	if facts := f.agent.readFacts(); len(facts.Taken) != 1 {
		t.Errorf("a VM that the server knows nothing of holds what it holds: %+v", facts.Taken)
	}
}

func TestFactsBeforeRecovery(t *testing.T) {
	var a Agent
	a.fleet.init()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errGivenBack)
	if _, err := a.Facts(ctx); !errors.Is(err, errGivenBack) {
		t.Errorf("%v", err)
	}
}

func TestHostKind(t *testing.T) {
	for want, cpu := range map[string]farm.CPUModel{
		"amd-epyc-7302-2s":         {Vendor: "AuthenticAMD", Name: "AMD EPYC 7302 16-Core Processor"},
		"intel-xeon-e5-2650-v2-2s": {Vendor: "GenuineIntel", Name: "Intel(R) Xeon(R) CPU E5-2650 v2 @ 2.60GHz"},
		"intel-xeon-gold-6130-2s":  {Vendor: "GenuineIntel", Name: "Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz"},
		"amd-ryzen-7-5800x-2s":     {Vendor: "AuthenticAMD", Name: "AMD Ryzen 7 5800X 8-Core Processor"},
		"2s":                       {},
	} {
		if got := hostKind(farm.Topology{CPU: cpu, Sockets: make([]farm.Socket, 2)}); got != want {
			t.Errorf("%q is %q, want %q", cpu.Name, got, want)
		}
	}
}
