package cells_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/e2e/farm/farmlab"
	"github.com/grange-project/grange/internal/farm"
)

// TestSlurmCell is a day in the life of a cell whose hosts are Slurm's.
func TestSlurmCell(t *testing.T) {
	if os.Getenv("GRANGE_BATCH") == "" {
		t.Skip("needs a Slurm: `make test-batch` installs one and runs this")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	s := start(t, ctx)
	for _, c := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"a VM and its job", s.life},
		{"its job is cancelled", s.cancelled},
		{"no room", s.noRoom},
		{"hosts are closed", s.drained},
		{"slurmctld is away", s.away},
		{"the server is killed", s.killed},
		{"jobs without a VM are in the accounts", s.accounts},
	} {
		if !t.Run(c.name, c.run) {
			return // the next one would find what this one left
		}
	}
	s.await(t, "nothing is left behind", func() error { // an epilog runs after its job has left the queue
		if left := s.farm.Leaks(ctx); len(left) > 0 {
			return errors.New(strings.Join(left, "; "))
		}
		return nil
	})
	if jobs := s.jobs(t); len(jobs) > 0 {
		t.Errorf("jobs left behind: %v", jobs)
	}
}

// life: a VM runs where Slurm holds its place, and on those CPUs. The place stays while it is stopped, and goes with
// it.
func (s *site) life(t *testing.T) {
	s.create(t, "box", "")
	s.create(t, "other", "")
	vm, other := s.until(t, "box", "runs", running), s.until(t, "other", "runs", running)
	s.enter(t, vm)
	place := s.placeOf(t, vm)
	if place.state != "RUNNING" || place.node != vm.Host || place.account != "peoplegrp" || place.cpus != "1" ||
		vm.Job != "slurm/"+place.id || s.machines(t, vm) != 1 {
		t.Errorf("%+v holds the place of %+v", place, vm)
	}
	for _, v := range []fleet.VM{vm, other} {
		s.onItsCPUs(t, v)
	}
	s.grange(t, "vm stop people/box --wait")
	if again := s.placeOf(t, vm); again != place {
		t.Errorf("its place was %+v, and is %+v while it is stopped", place, again)
	}
	s.grange(t, "vm start people/box --wait")
	s.grange(t, "vm restart people/box --wait")
	s.enter(t, vm)
	if again := s.placeOf(t, vm); again != place || s.machines(t, vm) != 1 {
		t.Errorf("its place was %+v, and is %+v", place, again)
	}
	s.refused(t, "reserved for it", "vm resize people/box --cpus 2")
	s.delete(t, "box", "other")
}

// onItsCPUs holds a VM to be where its job is, if Slurm confines jobs here.
func (s *site) onItsCPUs(t *testing.T, vm fleet.VM) {
	t.Helper()
	if !s.slurm.Cgroups() {
		t.Log("Slurm has no control groups here: its jobs are on no CPUs in particular")
		return
	}
	cpus, err := os.ReadFile(fmt.Sprintf("/sys/fs/cgroup/cpuset/slurm_%s/uid_0/job_%s/cpuset.cpus", vm.Host,
		strings.TrimPrefix(vm.Job, "slurm/")))
	if err != nil {
		t.Fatal(err)
	}
	// what the host checked in the kernel
	if vm.Plan == nil || strings.Join(vm.Plan.VCPUs, ",") != strings.TrimSpace(string(cpus)) {
		t.Errorf("VM %s is on %+v, and its job on CPUs %s", vm.Name, vm.Plan, cpus)
	}
}

// cancelled: Slurm's administrator wants the room back. The VM ends, says why, and does not come back by itself; its
// owner may have it reserved again.
func (s *site) cancelled(t *testing.T) {
	vm := s.create(t, "box", "--wait")
	before := s.placeOf(t, vm)
	s.root(t, "scancel", before.id)
	s.until(t, "box", "is stopped, and says why", func(v fleet.VM) bool {
		return v.State == string(farm.VMStopped) && v.Job == "" &&
			strings.Contains(v.Notice, "job "+before.id+" of west") && strings.Contains(v.Notice, "was cancelled there")
	})
	s.await(t, "nothing of it is left but its disks", func() error { // libvirt hears of an end a moment after its host
		if jobs, n := s.jobs(t), s.machines(t, vm); len(jobs) > 0 || n > 0 {
			return fmt.Errorf("jobs %v, %d machines", jobs, n)
		}
		return nil
	})
	s.grange(t, "vm start people/box --wait")
	if vm = s.until(t, "box", "runs", running); vm.Notice != "" {
		t.Errorf("it says %q", vm.Notice)
	}
	if after := s.placeOf(t, vm); after.id == before.id || after.node != before.node || after.state != "RUNNING" {
		t.Errorf("%+v", after)
	}
	s.enter(t, vm)
	s.onItsCPUs(t, vm)
	s.delete(t, "box")
}

// noRoom: people are told in their own words what a VM waits for, and it comes when there is room.
func (s *site) noRoom(t *testing.T) {
	cpus := s.occupy(t, "--nodes=2", "--ntasks=2", "--exclusive", "--mem=100M")
	s.create(t, "box", "")
	s.until(t, "box", "waits for CPUs", func(v fleet.VM) bool {
		return v.State == string(farm.VMPlacing) && strings.Contains(v.Notice, "0 of its 2 CPUs are free in west")
	})
	if why := s.grange(t, "why people/box"); !strings.Contains(why, "0 of its 2 CPUs are free in west") {
		t.Errorf("why says %s", why)
	}
	// Slurm alone knows that there is no memory: the place is asked for, and waits in its queue.
	s.root(t, "scancel", cpus)
	s.until(t, "box", "runs", running)
	s.delete(t, "box")
	memory := s.occupy(t, "--nodes=2", "--ntasks=2", "--mem=5800M")
	two := s.create(t, "two", "")
	s.until(t, "two", "waits for memory", func(v fleet.VM) bool {
		return strings.Contains(v.Notice, "other jobs have the CPUs or the memory (Resources)")
	})
	if why := s.grange(t, "why people/two"); !strings.Contains(why, "job "+s.placeOf(t, two).id+" of west") ||
		!strings.Contains(why, "other jobs have") {
		t.Errorf("why says %s", why)
	}
	s.root(t, "scancel", memory)
	s.until(t, "two", "runs", running)
	s.delete(t, "two")
}

// drained: a host that people close is closed in Slurm too, with their reason, and opened again; what Slurm's
// administrator closed is theirs.
func (s *site) drained(t *testing.T) {
	mine, theirs := farmlab.HostName(0), farmlab.HostName(1)
	s.root(t, "scontrol", "update", "nodename="+theirs, "state=drain", "reason=bad fan")
	s.grange(t, "host drain "+mine+" --reason new-disks")
	s.node(t, mine, "DRAIN", "Reason=grange: new-disks")
	s.create(t, "box", "")
	s.until(t, "box", "waits for a host", func(v fleet.VM) bool {
		return strings.Contains(v.Notice, "in west it is closed: bad fan") &&
			strings.Contains(v.Notice, "it is being drained: new-disks")
	})
	s.grange(t, "host open "+mine+" "+theirs)
	s.node(t, mine, "IDLE", "")
	if vm := s.until(t, "box", "runs", running); vm.Host != mine {
		t.Errorf("it runs on %s, which is drained", vm.Host)
	}
	s.node(t, theirs, "DRAIN", "Reason=bad fan")
	s.root(t, "scontrol", "update", "nodename="+theirs, "state=undrain")
	s.delete(t, "box")
}

// node waits until Slurm has a node so.
func (s *site) node(t *testing.T, name, state, reason string) {
	t.Helper()
	s.await(t, name+" is "+state, func() error {
		text := s.root(t, "scontrol", "show", "node", name)
		line, _, _ := strings.Cut(text[strings.Index(text, "State="):], " ")
		if !strings.Contains(line, state) || state != "DRAIN" && strings.Contains(line, "DRAIN") ||
			!strings.Contains(text, reason) {
			return fmt.Errorf("%s; reason %q", line, text[max(0, strings.Index(text, "Reason=")):])
		}
		return nil
	})
}

// away: without slurmctld what runs goes on, nothing is lost, and people are told what is waited for.
func (s *site) away(t *testing.T) {
	s.create(t, "box", "")
	s.create(t, "old", "")
	vm := s.until(t, "box", "runs", running)
	s.until(t, "old", "runs", running)
	if err := s.slurm.KillDaemon("slurmctld"); err != nil {
		t.Fatal(err)
	}
	s.create(t, "new", "")
	says := func(v fleet.VM) bool { return strings.Contains(v.Notice, "slurm does not answer") }
	s.until(t, "new", "says that Slurm is away",
		func(v fleet.VM) bool { return v.State == string(farm.VMPlacing) && says(v) })
	if why := s.grange(t, "why people/new"); !strings.Contains(why, "slurm does not answer") {
		t.Errorf("why says %s", why)
	}
	s.grange(t, "vm delete people/old")
	s.grange(t, "vm stop people/box --wait")
	s.grange(t, "vm start people/box --wait")
	s.enter(t, vm)
	s.await(t, "the machine of old is gone", func() error {
		if old := s.vm(t, "old"); s.machines(t, old) != 0 || old.State != string(farm.VMGone) {
			return fmt.Errorf("it is %s: %s", old.State, old.Notice)
		}
		return nil
	})
	if err := s.slurm.StartSlurmctld(s.ctx); err != nil {
		t.Fatal(err)
	}
	s.until(t, "new", "runs", running)
	s.await(t, "old is given back", func() error {
		jobs, err := s.squeue()
		if err == nil && len(jobs) != 2 {
			err = fmt.Errorf("%v", jobs)
		}
		return err
	})
	if again := s.vm(t, "box"); again.Job != vm.Job || !running(again) {
		t.Errorf("%+v", again)
	}
	s.delete(t, "box", "new")
}

// killed: the server dies after Slurm has taken a reservation and before it wrote that down. The next one finds it, and
// makes no second.
func (s *site) killed(t *testing.T) {
	server, before := s.farm.Servers[0], s.submissions(t)
	vm := s.create(t, "box", "")
	s.stopAtSubmission(t, before)
	server.Kill()
	if strings.Contains(server.Log(), "VM has a reservation\" vm="+vm.ID) {
		t.Error("the VM was reserved before the server was killed: this shows nothing")
	}
	if err := s.slurm.SignalDaemon("slurmctld", syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(s.ctx); err != nil {
		t.Fatal(err)
	}
	vm = s.until(t, "box", "runs", running)
	if place := s.placeOf(t, vm); vm.Job != "slurm/"+place.id || place.node != vm.Host || s.machines(t, vm) != 1 ||
		s.submissions(t) != before+1 {
		t.Errorf("%+v holds the place of %+v, which has %d machines; %d jobs were submitted", place, vm,
			s.machines(t, vm), s.submissions(t)-before)
	}
	s.delete(t, "box")
}

// submissions is how many jobs slurmctld has taken so far: it logs each at once.
func (s *site) submissions(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.slurm.Dir(), "log", "slurmctld.log"))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(text, []byte("_slurm_rpc_submit_batch_job: JobId="))
}

// stopAtSubmission stops slurmctld as soon as it has taken one job more: it answers nobody any more, and knows the job.
func (s *site) stopAtSubmission(t *testing.T, before int) {
	t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for s.submissions(t) == before {
		select {
		case <-look.C:
		case <-s.ctx.Done():
			t.Fatal("Slurm never takes the job")
		}
	}
	if err := s.slurm.SignalDaemon("slurmctld", syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}
