package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/fake"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// metalLab is a batch lab whose jobs without a VM are in the accounts. Its clock is that of its batch system.
type metalLab struct{ *batchLab }

func newMetalLab(t *testing.T) *metalLab {
	l := &metalLab{newBatchLab(t)}
	l.pass(time.Since(l.clock()))
	return l
}

// ran is a job that has run on a host; its name in the accounts.
func (l *metalLab) ran(j fake.Job, o batch.Outcome, code int) string {
	l.t.Helper()
	id := l.slurm.Submit(j)
	if l.slurm.Runs(id) == "" {
		l.t.Fatalf("job %s does not run", id)
	}
	l.slurm.End(id, o, code)
	return "slurm/" + id
}

// read asks the batch system, as the loop does.
func (l *metalLab) read() error {
	return l.Usage.ReadEnded(l.t.Context(), l.lease, farm.Cell{Name: "farm"}, l.slurm,
		map[string]string{"n1": "n1.example.org", "n2": "n2.example.org"})
}

// records are those of this month, by batch job, with their kinds.
func (l *metalLab) records() map[string]api.Usage {
	l.t.Helper()
	page, err := l.Usage.Records(l.t.Context(), site, fleet.UsageQuery{From: "2000-01"}, "", 1000)
	if err != nil {
		l.t.Fatal(err)
	}
	out := map[string]api.Usage{}
	for _, u := range page.Items {
		if was, ok := out[u.Batch]; ok {
			l.t.Errorf("%s has two records: %+v, %+v", u.Batch, was, u)
		}
		out[u.Batch] = u
	}
	return out
}

// ofVM is the record that a host brings of a job's VM.
func (l *metalLab) ofVM(host, batch string) (api.Usage, farm.Identity) {
	id := "00000000-0000-4000-8000-" + (batch + "xxxxxxxxxxxx")[:12]
	hex := []byte(id)
	for i, c := range hex {
		if c == '/' || c > 'f' {
			hex[i] = 'a'
		}
	}
	now := time.Now()
	return api.Usage{ID: string(hex), Kind: api.UsageJob, Batch: batch, User: "eva", Cores: 2, Start: now, End: now},
		farm.Identity{Host: l.hosts[host].ID, Means: "certificate"}
}

// TestMetalOnce: a job without a VM is counted once, however often its batch system tells of it; one with a VM is
// counted by that, whichever is told first; and what is none of the hosts' jobs is not.
func TestMetalOnce(t *testing.T) {
	l := newMetalLab(t)
	plain := l.ran(fake.Job{User: "eva", Account: "alicegrp", Host: "n1", CPUs: 4}, batch.OutcomeDone, 0)
	first := l.ran(fake.Job{User: "eva", Host: "n1"}, batch.OutcomeDone, 0)
	later := l.ran(fake.Job{User: "eva", Host: "n2"}, batch.OutcomeMemory, 0)
	l.ran(fake.Job{Name: batch.JobName("a-cloud-vm"), Host: "n1"}, batch.OutcomeCancelled, 0)
	vm, of := l.ofVM("n1", first)
	l.takes(of, 1, 0, vm)
	for range 2 {
		if err := l.read(); err != nil {
			t.Fatal(err)
		}
	}
	got := l.records()
	if u := got[plain]; u.Kind != "metal" || u.Project != "alice" || u.Host != "n1.example.org" || u.Cores != 4 ||
		u.Ended != "exit:0" || u.Cell != "farm" || u.Queue != "main" {
		t.Errorf("%+v", u)
	}
	if got[first].Kind != "job" || got[later].Kind != "metal" || got[later].Ended != "out of memory" || len(got) != 3 {
		t.Errorf("%+v", got)
	}
	// the wrong host cannot make it go
	vm, of = l.ofVM("n1", later)
	vm.ID = "11111111-0000-4000-8000-000000000001"
	l.takes(of, 1, 0, vm)
	vm, of = l.ofVM("n2", later)
	l.takes(of, 1, 0, vm)
	page, err := l.Usage.Records(t.Context(), site, fleet.UsageQuery{Kind: "metal"}, "", 10)
	if err != nil || len(page.Items) != 1 || page.Items[0].Batch != plain {
		t.Errorf("%+v, %v", page.Items, err)
	}
}

// TestMetalOfAnotherRun: the VM of a job that had the same number long ago does not stand for this one.
func TestMetalOfAnotherRun(t *testing.T) {
	l := newMetalLab(t)
	job := l.ran(fake.Job{User: "eva", Host: "n1"}, batch.OutcomeDone, 0)
	vm, of := l.ofVM("n1", job)
	vm.End = vm.End.Add(-48 * time.Hour)
	vm.Start = vm.End.Add(-time.Hour)
	l.takes(of, 1, 0, vm)
	if err := l.read(); err != nil {
		t.Fatal(err)
	}
	again, _ := l.ofVM("n1", job)
	again.ID = "11111111-0000-4000-8000-000000000001"
	for _, want := range []int{1, 0} {
		page, err := l.Usage.Records(t.Context(), site, fleet.UsageQuery{Kind: "metal"}, "", 10)
		if err != nil || len(page.Items) != want {
			t.Errorf("%+v, %v; want %d", page.Items, err, want)
		}
		l.takes(of, want, 0, again)
	}
}

// TestMetalAway: a batch system that does not answer loses nothing.
func TestMetalAway(t *testing.T) {
	l := newMetalLab(t)
	one := l.ran(fake.Job{User: "eva"}, batch.OutcomeFailed, 3)
	away := errors.New("slurmdbd is away")
	l.slurm.Fail(away)
	if err := l.read(); !errors.Is(err, away) {
		t.Error(err)
	}
	l.slurm.Fail(nil)
	if err := l.read(); err != nil {
		t.Fatal(err)
	}
	if got := l.records(); len(got) != 1 || got[one].Ended != "exit:3" {
		t.Errorf("%+v", got)
	}
}

// TestMetalMany: more jobs than one transaction takes.
func TestMetalMany(t *testing.T) {
	l := newMetalLab(t)
	for range 620 {
		l.ran(fake.Job{User: "eva"}, batch.OutcomeDone, 0)
	}
	if err := l.read(); err != nil {
		t.Fatal(err)
	}
	if got := l.records(); len(got) != 620 {
		t.Errorf("%d records", len(got))
	}
}

// TestMetalOfAClosedMonth: the record of a VM whose job was counted in a month that is closed is not counted again.
func TestMetalOfAClosedMonth(t *testing.T) {
	l := newMetalLab(t)
	job := l.ran(fake.Job{User: "eva", Host: "n1"}, batch.OutcomeDone, 0)
	if err := l.read(); err != nil {
		t.Fatal(err)
	}
	month := l.clock().UTC().Format("2006-01")
	l.pass(40 * 24 * time.Hour)
	if _, err := l.Usage.CloseMonth(t.Context(), site, month); err != nil {
		t.Fatal(err)
	}
	vm, of := l.ofVM("n1", job)
	l.takes(of, 0, 1, vm)
	if got := l.records(); len(got) != 1 || got[job].Kind != "metal" {
		t.Errorf("%+v", got)
	}
}

// changed is a batch system that tells of one run.
type changed struct {
	batch.System
	run batch.Ended
}

func (c *changed) Ended(context.Context, batch.Cursor, int) ([]batch.Ended, batch.Cursor, error) {
	return []batch.Ended{c.run}, "", nil
}

// TestMetalChanged: what a batch system says of a run later counts in the place of what it said before, as slurmdbd
// does behind a crash of slurmctld; in a month that is closed it stays. A run that was put back is another one.
func TestMetalChanged(t *testing.T) {
	l := newMetalLab(t)
	began := l.clock().UTC()
	says := &changed{l.slurm, batch.Ended{Job: "7", Run: "first", User: "eva", Hosts: []string{"n1"}, CPUs: 2,
		Queue: "main", Started: began, Finished: began.Add(time.Minute), Outcome: batch.OutcomeDone}}
	read := func() {
		t.Helper()
		if err := l.Usage.ReadEnded(t.Context(), l.lease, farm.Cell{Name: "farm"}, says,
			map[string]string{"n1": "n1.example.org"}); err != nil {
			t.Fatal(err)
		}
	}
	read()
	says.run.Started, says.run.Finished = began.Add(time.Hour), began.Add(2*time.Hour)
	says.run.Outcome = batch.OutcomeNode
	read()
	read()
	if got := l.records()["slurm/7"]; got.Wall != 3600 || got.Ended != string(batch.OutcomeNode) {
		t.Errorf("%+v", got)
	}
	// as an earlier release named it, by its start
	says.run.Run = ""
	read()
	says.run.Run, says.run.Finished = "first", began.Add(150*time.Minute)
	read()
	if got := l.records()["slurm/7"]; got.Wall != 5400 {
		t.Errorf("%+v", got)
	}
	l.pass(40 * 24 * time.Hour)
	if _, err := l.Usage.CloseMonth(t.Context(), site, began.Format("2006-01")); err != nil {
		t.Fatal(err)
	}
	says.run.Finished = began.Add(3 * time.Hour)
	read()
	if got := l.records()["slurm/7"]; got.Wall != 5400 {
		t.Errorf("a closed month changed: %+v", got)
	}
	says.run.Run, says.run.Started = "second", began.Add(100*time.Minute)
	read()
	page, err := l.Usage.Records(t.Context(), site, fleet.UsageQuery{From: "2000-01"}, "", 10)
	if err != nil || len(page.Items) != 2 {
		t.Errorf("%+v, %v", page.Items, err)
	}
}

// TestMetalUnknownCPU: a run without a CPU time has none in the accounts, and the sums say for how many core hours.
func TestMetalUnknownCPU(t *testing.T) {
	l := newMetalLab(t)
	began := l.clock().UTC()
	says := &changed{l.slurm, batch.Ended{Job: "7", Run: "first", User: "eva", Hosts: []string{"n1"}, CPUs: 2,
		Queue: "main", Started: began, Finished: began.Add(time.Hour), Outcome: batch.OutcomeDone}}
	for _, used := range []*time.Duration{nil, new(90 * time.Minute), nil} {
		says.run.CPUTime = used
		if err := l.Usage.ReadEnded(t.Context(), l.lease, farm.Cell{Name: "farm"}, says,
			map[string]string{"n1": "n1.example.org"}); err != nil {
			t.Fatal(err)
		}
		if u := l.records()["slurm/7"]; (u.CPU == nil) != (used == nil) || used != nil && *u.CPU != used.Seconds() {
			t.Errorf("%v: %+v", used, u)
		}
	}
	sum, err := l.Usage.Sum(t.Context(), site, fleet.UsageQuery{From: "2000-01", By: "kind"})
	if err != nil || len(sum.Lines) != 1 || sum.Lines[0].CPUUnknown != 1 || sum.Lines[0].CPUUnknownHours != 2 ||
		sum.Lines[0].CPUHours != 0 {
		t.Errorf("%+v, %v", sum, err)
	}
}

// TestMetalJoinsLater: jobs that were read before their host had joined are counted when it has.
func TestMetalJoinsLater(t *testing.T) {
	l := newMetalLab(t)
	read := func(nodes ...string) map[string]api.Usage {
		t.Helper()
		hosts := map[string]string{}
		for _, n := range nodes {
			hosts[n] = n + ".example.org"
		}
		if err := l.Usage.ReadEnded(t.Context(), l.lease, farm.Cell{Name: "farm"}, l.slurm, hosts); err != nil {
			t.Fatal(err)
		}
		return l.records()
	}
	one := l.ran(fake.Job{User: "eva", Host: "n1", CPUs: 2}, batch.OutcomeDone, 0)
	two := l.ran(fake.Job{User: "eva", Host: "n2", CPUs: 3}, batch.OutcomeDone, 0)
	if got := read(); len(got) != 0 {
		t.Errorf("without hosts: %+v", got)
	}
	if got := read("n1"); len(got) != 1 || got[one].Cores != 2 {
		t.Errorf("with one host: %+v", got)
	}
	for range 2 {
		if got := read("n1", "n2"); len(got) != 2 || got[two].Cores != 3 || got[two].Host != "n2.example.org" {
			t.Errorf("with both hosts: %+v", got)
		}
	}
	if got := read("n1"); len(got) != 2 {
		t.Errorf("when a host has left: %+v", got)
	}
	three := l.ran(fake.Job{User: "eva", Host: "n2"}, batch.OutcomeDone, 0)
	read("n1")
	if got := read("n1", "n2"); len(got) != 3 || got[three].Kind != api.UsageMetal {
		t.Errorf("when it is back: %+v", got)
	}
}

// TestMetalJoinsClosed: a host that joins changes no closed month.
func TestMetalJoinsClosed(t *testing.T) {
	l := newMetalLab(t)
	month := l.clock().UTC().Format("2006-01")
	l.ran(fake.Job{User: "eva", Host: "n2"}, batch.OutcomeDone, 0)
	hosts := map[string]string{"n1": "n1.example.org"}
	read := func() int {
		t.Helper()
		if err := l.Usage.ReadEnded(t.Context(), l.lease, farm.Cell{Name: "farm"}, l.slurm, hosts); err != nil {
			t.Fatal(err)
		}
		return len(l.records())
	}
	read()
	l.pass(40 * 24 * time.Hour)
	if _, err := l.Usage.CloseMonth(t.Context(), site, month); err != nil {
		t.Fatal(err)
	}
	hosts["n2"] = "n2.example.org"
	if n := read(); n != 0 {
		t.Errorf("%d records of a closed month", n)
	}
	l.ran(fake.Job{User: "eva", Host: "n2"}, batch.OutcomeDone, 0)
	if n := read(); n != 1 {
		t.Errorf("%d records of the open month", n)
	}
}

// TestNodeOfAnotherName: a host has the node that its agent is configured with; it is closed with the host, and its
// jobs are counted.
func TestNodeOfAnotherName(t *testing.T) {
	l := newMetalLab(t)
	l.Server.brokers.ReadEnded = l.Usage.ReadEnded
	h := l.hosts["n2"]
	h.Name = "rack7-03.example.org"
	l.update(func(tx *store.Tx) error { return tx.SetHost(h) })
	job := l.ran(fake.Job{User: "eva", Host: "n2"}, batch.OutcomeDone, 0)
	l.loop()
	if got := l.records(); len(got) != 0 {
		t.Errorf("before the agent has said so: %+v", got)
	}
	l.update(func(tx *store.Tx) error {
		return tx.SetHostFacts(h.ID, farm.Facts{BatchNode: "n2"})
	})
	if _, err := l.Hosts.Close(t.Context(), site, []string{h.Name}, "new disks"); err != nil {
		t.Fatal(err)
	}
	l.pass(2 * time.Minute)
	l.loop()
	if got := l.records(); got[job].Host != h.Name {
		t.Errorf("%+v", got)
	}
	nodes, err := l.slurm.Nodes(t.Context())
	if err != nil || nodes[1].Name != "n2" || !nodes[1].Closed {
		t.Errorf("%+v, %v", nodes, err)
	}
}
