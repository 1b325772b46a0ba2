package server

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/fake"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/broker"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/wire"
)

// batchLab is a lab whose cell "farm", of project alice, is Slurm's: hosts n1 and n2 of 16 CPUs.
type batchLab struct {
	*lab
	slurm *fake.System
	hosts map[string]farm.Host
	lease int64
}

func newBatchLab(t *testing.T) *batchLab {
	l := &batchLab{lab: newLab(t), slurm: fake.New(farm.Slurm, 16, 64, "n1", "n2"), hosts: map[string]farm.Host{}}
	l.brokers["farm"] = l.slurm
	l.update(func(tx *store.Tx) error {
		return errors.Join(tx.PutCell(farm.Cell{Name: "farm", Broker: "slurm",
			Projects: []string{"alice"}}.WithDefaults()),
			tx.PutProject(farm.Project{Name: "alice", Account: "alicegrp"}))
	})
	for _, name := range []string{"n1", "n2"} {
		l.hosts[name] = l.host(name+".example.org", "farm")
	}
	l.lease = l.epoch()
	return l
}

// loop is one pass of the loop, after the placer has handed over what it found.
func (l *batchLab) loop() {
	l.t.Helper()
	var waiting []farm.VM
	l.view(func(tx *store.Tx) (err error) {
		waiting, err = tx.VMs(store.VMFilter{Project: "alice", Unplaced: true})
		return err
	})
	for _, vm := range waiting {
		if err := l.Server.brokers.Reserve(l.t.Context(), l.lease, vm, "farm"); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := l.brokersOnce(); err != nil {
		l.t.Fatal(err)
	}
}

func (l *batchLab) brokersOnce() error { return l.Server.brokers.Pass(l.t.Context(), l.lease) }

func (l *batchLab) reservations() map[string]string {
	l.t.Helper()
	all, err := l.slurm.Reservations(context.Background())
	if err != nil {
		l.t.Fatal(err)
	}
	found := map[string]string{}
	for _, b := range all {
		found[b.Name] = b.Host
	}
	return found
}

func TestBatchCell(t *testing.T) {
	l := newBatchLab(t)
	r := web("web")
	r.Shape, r.Count = "large", 3 // 8 CPUs each: two fill a host
	made := l.create(ann, r)
	l.loop()
	hosts := map[string]int{}
	for _, v := range made {
		got := l.get(v.ID)
		hosts[got.HostName]++
		if got.Cell != "farm" || !strings.HasPrefix(got.Job(), "slurm/") || got.State != farm.VMStarting ||
			len(got.Plan.VCPUs) > 0 {
			t.Errorf("%+v", got)
		}
		l.says(v.ID, farm.VMRunning)
	}
	if d := cmp.Diff(map[string]int{"n1.example.org": 2, "n2.example.org": 1}, hosts); d != "" {
		t.Error(d)
	}
	reserved, err := l.slurm.Reserved(t.Context(), made[0].ID)
	if err != nil || reserved.Account != "alicegrp" || reserved.CPUs != 8 || reserved.Memory <= 16*farm.GiB ||
		!reserved.Held {
		t.Errorf("%+v %v", reserved, err)
	}
	l.loop()
	if n := len(l.reservations()); n != 3 {
		t.Errorf("%d reservations after another pass", n)
	}
	// A VM's capacity is given back when its host has said that it is gone, and no sooner; then its name is free.
	if _, err := l.VMs.Delete(t.Context(), ann, made[0].ID, 0); err != nil {
		t.Fatal(err)
	}
	l.loop()
	if n := len(l.reservations()); n != 3 {
		t.Errorf("%d reservations while the VM is being deleted", n)
	}
	vm, _ := l.row(made[0].ID)
	l.update(func(tx *store.Tx) error { return l.endVM(tx, vm, "its host says so") })
	l.loop()
	if _, there := l.row(vm.ID); there || len(l.reservations()) != 2 {
		t.Error("the row is there:", there, l.reservations())
	}
	if _, err := l.VMs.Resize(t.Context(), ann, made[1].ID, 0, ResizeVM{CPUs: 4}); code(err) != CodeNoResize {
		t.Error(err)
	}
}

// While jobs have the hosts, a VM waits and says for what; when one ends it gets its place.
func TestBatchCellIsFull(t *testing.T) {
	l := newBatchLab(t)
	var jobs []string
	for _, host := range []string{"n1", "n2"} {
		jobs = append(jobs, l.slurm.Submit(fake.Job{User: "eva", Host: host, CPUs: 15}))
	}
	v := l.create(ann, web("web"))[0]
	l.loop()
	if got := l.get(v.ID); got.State != farm.VMPlacing ||
		!strings.Contains(got.Notice, "no host of cell farm has room") {
		t.Errorf("%+v", got)
	}
	l.slurm.End(jobs[0], batch.OutcomeDone, 0)
	l.loop()
	if got := l.get(v.ID); got.HostName != "n1.example.org" || got.Notice != "" {
		t.Errorf("%+v", got)
	}
}

// Whoever dies between two steps, the next server finds what was begun: nothing is reserved twice.
func TestReservationsSurvive(t *testing.T) {
	l := newBatchLab(t)
	v := l.create(ann, web("web"))[0]
	vm, _ := l.row(v.ID)
	if err := l.Server.brokers.Reserve(t.Context(), l.lease, vm, "farm"); err != nil {
		t.Fatal(err)
	}
	if err := l.Server.brokers.Reserve(t.Context(), l.lease, vm, "farm"); err != nil { // told twice
		t.Fatal(err)
	}
	// It was reserved, and the server died before it wrote so.
	if _, err := l.slurm.Reserve(t.Context(),
		batch.Reservation{Name: v.ID, Account: "alicegrp", Host: "n2", CPUs: 2}); err != nil {
		t.Fatal(err)
	}
	l.Server.brokers = broker.New(l.Server.brokers.Options)
	l.loop()
	if got := l.get(v.ID); got.HostName != "n2.example.org" || len(l.reservations()) != 1 {
		t.Errorf("%+v %v", got, l.reservations())
	}
	// Its deletion before it has a host.
	w := l.create(ann, web("other"))[0]
	vm, _ = l.row(w.ID)
	if err := l.Server.brokers.Reserve(t.Context(), l.lease, vm, "farm"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.slurm.Reserve(t.Context(),
		batch.Reservation{Name: w.ID, Account: "alicegrp", Host: "n2", CPUs: 2}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.VMs.Delete(t.Context(), ann, w.ID, 0); err != nil {
		t.Fatal(err)
	}
	l.slurm.Fail(errors.New("slurmctld is down"))
	if err := l.brokersOnce(); err != nil {
		t.Fatal(err)
	}
	if got := l.get(w.ID); got.State != farm.VMGone || !strings.Contains(got.Notice, "slurm does not answer") {
		t.Error(got.State, got.Notice)
	}
	l.slurm.Fail(nil)
	l.loop()
	if _, there := l.row(w.ID); there || len(l.reservations()) != 1 {
		t.Error(there, l.reservations())
	}
}

// told is what the host of a VM is told of it.
func (l *batchLab) told(v VMView) (power, job string) {
	l.t.Helper()
	now, _ := l.row(v.ID)
	w := wire.WantedVM(now, farm.FleetNetwork{}, nil)
	return w.Power, w.Job
}

// A placeholder job that somebody ends takes its VM along: others may have the room by then. Its disks stay where they
// are, and so does the VM when people start it again; but not before its place is reserved.
func TestReservationIsEnded(t *testing.T) {
	l := newBatchLab(t)
	v := l.create(ann, web("web"))[0]
	l.loop()
	l.says(v.ID, farm.VMRunning)
	before, err := l.slurm.Reserved(t.Context(), v.ID)
	if err != nil {
		t.Fatal(err)
	}
	if power, job := l.told(v); power != "on" || job != "slurm/"+before.Job {
		t.Errorf("its host is told %s, on the CPUs of %s", power, job)
	}
	l.slurm.End(before.Job, batch.OutcomeCancelled, 0)
	l.loop()
	l.loop() // nothing more comes of it
	if got := l.get(v.ID); got.State != farm.VMStopping || got.Wanted.Power != farm.PowerOff ||
		!strings.Contains(got.Notice, "job "+before.Job+" of slurm, which held its place, was cancelled there at ") {
		t.Errorf("%+v", got)
	}
	if power, job := l.told(v); power != "off" || job != "" || len(l.reservations()) != 0 {
		t.Errorf("its host is told %s, on the CPUs of %s; reservations are %v", power, job, l.reservations())
	}
	l.says(v.ID, farm.VMStopped)
	// Somebody else has the room: it waits for it, on its host.
	job := l.slurm.Submit(fake.Job{User: "eva", Host: before.Host, CPUs: 16})
	if _, err := l.VMs.Start(t.Context(), ann, v.ID, 0); err != nil {
		t.Fatal(err)
	}
	if power, _ := l.told(v); power != "off" {
		t.Error("its host may start it before its place is reserved")
	}
	l.loop()
	l.loop()
	if got := l.get(v.ID); got.State != farm.VMStarting || got.HostName == "" ||
		!strings.Contains(got.Notice, "is to hold its place on "+before.Host+", and waits: ") {
		t.Errorf("%+v", got)
	}
	if power, _ := l.told(v); power != "off" {
		t.Error("its host may start it before its place is held")
	}
	l.slurm.End(job, batch.OutcomeDone, 0)
	l.loop()
	after, err := l.slurm.Reserved(t.Context(), v.ID)
	if err != nil || !after.Held || after.Job == before.Job || after.Host != before.Host {
		t.Errorf("%+v %v", after, err)
	}
	if power, job := l.told(v); power != "on" || job != "slurm/"+after.Job || l.get(v.ID).Notice != "" {
		t.Errorf("its host is told %s, on the CPUs of %s; %q", power, job, l.get(v.ID).Notice)
	}
}

// A reservation that nobody ended, but that is lost with the batch system's idea of the host, or of everything, is made
// again. The VM goes on.
func TestReservationIsLost(t *testing.T) {
	l := newBatchLab(t)
	v := l.create(ann, web("web"))[0]
	l.loop()
	l.says(v.ID, farm.VMRunning)
	before, err := l.slurm.Reserved(t.Context(), v.ID)
	if err != nil {
		t.Fatal(err)
	}
	l.slurm.End(before.Job, batch.OutcomeNode, 0)
	l.loop()
	after, err := l.slurm.Reserved(t.Context(), v.ID)
	if err != nil || after.Job == before.Job || after.Host != before.Host {
		t.Errorf("%+v %v", after, err)
	}
	if power, job := l.told(v); power != "on" || job != "slurm/"+after.Job {
		t.Errorf("its host is told %s, on the CPUs of %s", power, job)
	}
	// Slurm was installed anew: it knows of no job.
	l.brokers["farm"] = fake.New(farm.Slurm, 16, 64, "n1", "n2")
	l.loop()
	if power, job := l.told(v); power != "on" || job != "slurm/1" {
		t.Errorf("its host is told %s, on the CPUs of %s", power, job)
	}
	if got := l.get(v.ID); got.State != farm.VMRunning || got.Notice != "" {
		t.Errorf("%+v", got)
	}
}

// slow is a batch system that tells of its nodes when a test lets it.
type slow struct {
	*fake.System
	answer chan struct{}
	asking atomic.Int32 // how many wait for an answer
}

func (s *slow) Nodes(ctx context.Context) ([]batch.Node, error) {
	s.asking.Add(1)
	defer s.asking.Add(-1)
	<-s.answer
	return s.System.Nodes(ctx)
}

// However many people ask why, a batch system is asked for one of them at a time: each takes several of its commands.
func TestManyAskWhyInABatchCell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newBatchLab(t)
		system := &slow{System: l.slurm, answer: make(chan struct{})}
		l.brokers["farm"] = system
		v := l.create(ann, web("web"))[0]
		const people = 5
		told := make(chan error, people)
		for range people {
			go func() {
				_, err := l.WhyOf(t.Context(), ann, v.ID)
				told <- err
			}()
		}
		for range people {
			if synctest.Wait(); system.asking.Load() != 1 {
				t.Errorf("%d ask at once", system.asking.Load())
			}
			system.answer <- struct{}{}
			if err := <-told; err != nil {
				t.Error(err)
			}
		}
	})
}

// Of each host why answers what the batch system says of it.
func TestWhyInABatchCell(t *testing.T) {
	l := newBatchLab(t)
	l.slurm.Submit(fake.Job{User: "eva", Host: "n1", CPUs: 15})
	l.slurm.AdminClose("n2", "bad fan")
	v := l.create(ann, web("web"))[0] // of 2 CPUs
	l.loop()
	e, err := l.WhyOf(t.Context(), ann, v.ID)
	if err != nil {
		t.Fatal(err)
	}
	each := map[string]string{}
	for _, a := range e.Each {
		each[a.Name] = string(a.Constraint) + ": " + a.Message
	}
	want := map[string]string{"n1.example.org": "cpus: 1 of its 16 CPUs are free in slurm",
		"n2.example.org": "host refuses: in slurm it is closed: bad fan"}
	if d := cmp.Diff(want, each); d != "" || e.Fits != 0 || e.Hosts != 2 || len(e.Sums) != 2 {
		t.Errorf("%s%+v", d, e)
	}
	if got := l.get(v.ID).Notice; !strings.Contains(got, want["n1.example.org"][6:]) ||
		!strings.Contains(got, "bad fan") {
		t.Error(got)
	}
	l.slurm.AdminOpen("n2")
	if e, err := l.WhyOf(t.Context(), ann, v.ID); err != nil || e.Fits != 1 || len(e.Changes) != 0 {
		t.Errorf("%+v %v", e, err)
	}
	l.slurm.Fail(errors.New("slurmctld is down"))
	if e, err := l.WhyOf(t.Context(), ann, v.ID); err != nil || e.Fits != 0 ||
		!strings.Contains(e.Sums[0].Example, "slurm does not answer") {
		t.Errorf("%+v %v", e, err)
	}
}

// A host that would not have a VM is left alone by it for a while, and so is its reservation.
func TestReservedHostRefuses(t *testing.T) {
	l := newBatchLab(t)
	v := l.create(ann, web("web"))[0]
	l.loop()
	first := l.get(v.ID)
	l.update(func(tx *store.Tx) error {
		return tx.SetVMObserved(v.ID,
			farm.Observed{State: farm.VMFailed, Reason: string(farm.CodeNoRoom) + ": a job has it", Since: l.clock()})
	})
	l.loop()
	l.loop()
	if second := l.get(v.ID); second.HostName == "" || second.HostName == first.HostName || len(l.reservations()) != 1 {
		t.Errorf("%+v %v", second, l.reservations())
	}
}

// strict is a batch system that reserves nothing for some accounts.
type strict struct {
	*fake.System
	account string
}

func (s strict) Reserve(ctx context.Context, b batch.Reservation) (batch.Reserved, error) {
	if b.Account == s.account {
		return batch.Reserved{}, batch.Refused(farm.Slurm, "Invalid account")
	}
	return s.System.Reserve(ctx, b)
}

// What the batch system has against one VM its owner is told, as long as it holds, and nobody else.
func TestReservationIsRefused(t *testing.T) {
	l := newBatchLab(t)
	l.brokers["farm"] = strict{l.slurm, "nobody"}
	l.update(func(tx *store.Tx) error { return tx.PutProject(farm.Project{Name: "alice", Account: "nobody"}) })
	v := l.create(ann, web("web"))[0]
	for range 4 { // both hosts, and then none is left to be asked
		l.loop()
		if got := l.get(v.ID); got.State != farm.VMPlacing || !strings.Contains(got.Notice, "Invalid account") {
			t.Errorf("%s: %q", got.State, got.Notice)
		}
	}
	var note broker.Note
	l.view(func(tx *store.Tx) (err error) { note, err = broker.ReadNote(tx, "farm"); return err })
	if note.Error != "" {
		t.Errorf("all VMs of the cell are told %q", note.Error)
	}
	l.update(func(tx *store.Tx) error { return tx.PutProject(farm.Project{Name: "alice", Account: "alicegrp"}) })
	l.pass(broker.Avoided + time.Second)
	for _, h := range l.hosts {
		l.seen(h)
	}
	l.loop()
	if got := l.get(v.ID); got.HostName == "" || got.Notice != "" {
		t.Errorf("%+v", got)
	}
}

// A VM that is lost with its host, and made anew, does not keep the dead host's reservation.
func TestLostReservation(t *testing.T) {
	l := newBatchLab(t)
	r := web("web")
	r.Tags = map[string]string{"on-loss": "replace"}
	v := l.create(ann, r)[0]
	l.loop()
	l.says(v.ID, farm.VMRunning)
	first := l.get(v.ID)
	l.pass(l.Links.Silence + time.Second)
	for _, h := range l.hosts {
		if h.ID != first.Host {
			l.seen(h)
		}
	}
	if _, err := l.Hosts.Fence(t.Context(), site, first.Host, 0, "burnt"); err != nil {
		t.Fatal(err)
	}
	l.loop()
	l.loop()
	if second := l.get(v.ID); second.HostName == "" || second.Host == first.Host || l.reservations()[v.ID] == "" ||
		l.reservations()[v.ID] == strings.TrimSuffix(first.HostName, ".example.org") {
		t.Errorf("%+v %v", second, l.reservations())
	}
}

// Closing a host closes it in its batch system too; when that is away it is tried again, and said.
func TestClosingInTheBatchSystem(t *testing.T) {
	l := newBatchLab(t)
	ctx := t.Context()
	l.slurm.Submit(fake.Job{User: "eva", Host: "n1", CPUs: 1})
	l.slurm.Fail(errors.New("slurmctld is down"))
	if _, err := l.Hosts.Drain(ctx, site, []string{"n1*"}, DrainOrder{Reason: "new disks"}); err != nil {
		t.Fatal(err)
	}
	warnings := func(host string) string {
		t.Helper()
		v, err := l.Hosts.Get(ctx, site, host)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(v.Warnings, "; ")
	}
	node := func(name string) batch.Node {
		t.Helper()
		all, err := l.slurm.Nodes(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range all {
			if n.Name == name {
				return n
			}
		}
		t.Fatal(name)
		return batch.Node{}
	}
	if w := warnings("n1.example.org"); w != "not closed in slurm yet" {
		t.Error(w)
	}
	l.loop()
	if w := warnings("n1.example.org"); !strings.Contains(w, "slurm does not answer") {
		t.Error(w)
	}
	l.slurm.Fail(nil)
	l.loop()
	if n := node("n1"); !n.Closed || !n.Ours || n.Reason != "new disks" || node("n2").Closed {
		t.Errorf("%+v", n)
	}
	if v, err := l.Hosts.Get(ctx, site, "n1.example.org"); err != nil || v.Jobs != 1 || len(v.Warnings) != 0 {
		t.Errorf("%+v %v", v, err)
	}
	if _, err := l.Hosts.Open(ctx, site, []string{"n1*"}); err != nil {
		t.Fatal(err)
	}
	l.loop()
	if n := node("n1"); n.Closed {
		t.Errorf("%+v", n)
	}
	// What somebody else has closed stays closed, and a cell takes all its hosts along.
	l.slurm.AdminClose("n2", "bad fan")
	if _, err := l.Cells.Close(ctx, site, "farm", 0, "power cut"); err != nil {
		t.Fatal(err)
	}
	l.loop()
	if n := node("n1"); !n.Closed || n.Reason != "power cut" || node("n2").Reason != "bad fan" {
		t.Errorf("%+v %+v", n, node("n2"))
	}
	if _, err := l.Cells.Open(ctx, site, "farm", 0); err != nil {
		t.Fatal(err)
	}
	l.loop()
	if node("n1").Closed || !node("n2").Closed {
		t.Errorf("%+v %+v", node("n1"), node("n2"))
	}
}

func TestCellLimitsInBatch(t *testing.T) {
	l := newBatchLab(t)
	l.update(func(tx *store.Tx) error {
		return tx.PutCell(farm.Cell{Name: "farm", Broker: "slurm", Projects: []string{"alice"},
			Limits: farm.Quota{VMs: 1}}.WithDefaults())
	})
	r := web("web")
	r.Count = 2
	l.create(ann, r)
	l.loop()
	if n := len(l.reservations()); n != 1 {
		t.Errorf("%d reservations", n)
	}
}

// The hosts of a cell fetch what jobs wait for, once; and again what the name means then.
func TestImageThatJobsWaitFor(t *testing.T) {
	l := newBatchLab(t)
	l.catalogued("debian", oldDebian, nil)
	fetched := func() (digests []string) {
		t.Helper()
		l.pass(2 * time.Minute)
		l.loop()
		l.view(func(tx *store.Tx) error {
			orders, err := store.ImagesOf(tx).Orders()
			for _, o := range orders {
				tasks, bad := store.ImagesOf(tx).Tasks(o.ID)
				err = errors.Join(err, bad)
				for _, task := range tasks {
					digests = append(digests, task.Digests...)
				}
			}
			return err
		})
		slices.Sort(digests)
		return digests
	}
	for range 16 { // hosts that are full
		l.slurm.Submit(fake.Job{CPUs: 2})
	}
	if got := fetched(); len(got) != 0 {
		t.Errorf("nothing waits for an image; fetched: %v", got)
	}
	for _, image := range []string{"debian", "debian", "no-such-image", ""} {
		l.slurm.Submit(fake.Job{CPUs: 2, Image: image})
	}
	for range 2 {
		if d := cmp.Diff([]string{oldDebian, oldDebian}, fetched()); d != "" {
			t.Error(d)
		}
	}
	l.catalogued("debian", newDebian, nil)
	if d := cmp.Diff([]string{oldDebian, oldDebian, newDebian, newDebian}, fetched()); d != "" {
		t.Error(d)
	}
	l.mark("debian", "withdrawn")
	l.pass(2 * time.Hour)
	if got := fetched(); len(got) != 4 {
		t.Errorf("a withdrawn image is fetched: %v", got)
	}
}
