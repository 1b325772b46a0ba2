// Package cells_test shows cells of a real batch system: a server, and hosts that are nodes of a Slurm.
package cells_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/e2e/batch/slurmlab"
	"github.com/grange-project/grange/e2e/farm/farmlab"
	"github.com/grange-project/grange/internal/farm"
)

// farmFile is what the site writes: one cell, of a Slurm that the server knows by a name of the site's, and one project
// that is charged to an account of another name.
const farmFile = `
[cells.batch]
broker = "west"
batch = "main"
projects = ["people"]

[projects.people]
account = "peoplegrp"

[shapes.tiny]
cpus = 1
memory = "192M"
scratch = "32M"
` + farmlab.Network

// site is a farm whose two hosts are the nodes of a Slurm.
type site struct {
	ctx   context.Context
	farm  *farmlab.Farm
	slurm *slurmlab.Lab
}

// start brings it up. Slurm runs where the server is: its commands reach it there.
func start(t *testing.T, ctx context.Context) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "gcells")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	conf := filepath.Join(dir, "slurm.conf") // its own place is known later than the server's configuration is read
	f, err := farmlab.Start(ctx, farmlab.Options{Cells: []string{"batch", "batch"}, Farm: farmFile, Slurm: true,
		Out: t.Output(), Server: fmt.Sprintf("[brokers.west]\nsystem = \"slurm\"\nenvironment = { SLURM_CONF = %q }\n"+
			"[usage]\nhost_jobs = true\n", conf)})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{ctx: ctx, farm: f}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	s.slurm, err = slurmlab.Start(ctx,
		slurmlab.Options{NoPlugin: true, Accounting: true, Nodes: []string{farmlab.HostName(0), farmlab.HostName(1)},
			CPUs: 2, Network: f.Network()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.Logs(), "\n== slurmctld\n"+s.slurm.Log("slurmctld"))
		}
		if err := s.slurm.Close(); err != nil {
			t.Error(err)
		}
	})
	// the project's account, which the server charges for VMs
	for _, what := range [][]string{{"account", "peoplegrp"}, {"user", "root", "Account=peoplegrp"}} {
		s.root(t, append(append([]string{"sacctmgr", "-i", "add"}, what...), "Cluster=grange")...)
	}
	if err := os.Symlink(s.slurm.Conf(), conf); err != nil {
		t.Fatal(err)
	}
	return s
}

// grange runs a command of an administrator's.
func (s *site) grange(t *testing.T, words string) string {
	t.Helper()
	out, err := s.farm.Run(s.ctx, strings.Fields(words)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// refused runs a command that must not work, and whose error must say why.
func (s *site) refused(t *testing.T, why, words string) {
	t.Helper()
	if out, err := s.farm.Run(s.ctx, strings.Fields(words)...); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("grange %s: %s %v", words, out, err)
	}
}

// create makes a VM of the one project.
func (s *site) create(t *testing.T, name, more string) fleet.VM {
	t.Helper()
	s.grange(t,
		"vm create --project people --image "+farmlab.Image+" --shape tiny --network lan --new-key --name "+name+" "+more)
	return s.vm(t, name)
}

func (s *site) vm(t *testing.T, name string) (vm fleet.VM) {
	t.Helper()
	if err := json.Unmarshal([]byte(s.grange(t, "vm show people/"+name+" --json")), &vm); err != nil {
		t.Fatal(err)
	}
	return vm
}

// until waits for a VM to be so.
func (s *site) until(t *testing.T, name, what string, so func(fleet.VM) bool) (vm fleet.VM) {
	t.Helper()
	s.await(t, "VM "+name+" "+what, func() error {
		if vm = s.vm(t, name); !so(vm) {
			return fmt.Errorf("it is %s on %q: %q %q", vm.State, vm.Host, vm.Notice, vm.Reason)
		}
		return nil
	})
	return vm
}

// await tries until there is no error.
func (s *site) await(t *testing.T, what string, try func() error) {
	t.Helper()
	if err := farmlab.Await(s.ctx, time.Minute, what,
		func() (bool, error) { err := try(); return err == nil, err }); err != nil {
		t.Fatal(err)
	}
}

func running(vm fleet.VM) bool { return vm.State == string(farm.VMRunning) && vm.Ready }

// enter logs in to a VM, and holds it to be the right one: it keeps its host key on its scratch disk.
func (s *site) enter(t *testing.T, vm fleet.VM) {
	t.Helper()
	if out := s.grange(t, "ssh people/"+vm.Name+" -- hostname; wget -qO- "+
		"http://169.254.169.254/latest/meta-data/instance-id"); strings.TrimSpace(out) != vm.Name+"\n"+vm.ID {
		t.Errorf("ssh to %s answered %q", vm.Name, out)
	}
}

// delete ends VMs, and waits until nothing of them is left.
func (s *site) delete(t *testing.T, names ...string) {
	t.Helper()
	words := "vm delete --wait"
	for _, name := range names {
		words += " people/" + name
	}
	s.grange(t, words)
	s.await(t, "all is given back", func() error {
		if jobs := s.jobs(t); slices.ContainsFunc(jobs, func(j job) bool { return j.user == "root" }) {
			return fmt.Errorf("jobs: %v", jobs)
		}
		return nil
	})
}

// job is one that is in Slurm's queue, or runs.
type job struct {
	id, name, user, state, node, account, cpus, reason string
}

func (s *site) jobs(t *testing.T) (all []job) {
	t.Helper()
	out, err := s.squeue()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (s *site) squeue() (all []job, err error) {
	out, err := s.slurm.Slurm(s.ctx, "root", "squeue", "--noheader", "--states=PENDING,CONFIGURING,RUNNING",
		"--format=%A|%j|%u|%T|%N|%a|%C|%r")
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 8 {
			return nil, errors.Join(err, fmt.Errorf("squeue says %q", line))
		}
		all = append(all, job{f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]})
	}
	return all, err
}

// placeOf is the one job that holds a VM's place.
func (s *site) placeOf(t *testing.T, vm fleet.VM) job {
	t.Helper()
	var found []job
	for _, j := range s.jobs(t) {
		if j.name == "grange-hold-"+vm.ID {
			found = append(found, j)
		}
	}
	if len(found) != 1 {
		t.Fatalf("VM %s has %d jobs: %v", vm.Name, len(found), found)
	}
	return found[0]
}

// occupy submits a job of a user's, which takes what there is until it is cancelled, and returns its ID once it runs.
func (s *site) occupy(t *testing.T, options ...string) string {
	t.Helper()
	out, err := s.slurm.Slurm(s.ctx, slurmlab.User, "sbatch",
		append(append([]string{"--parsable", "--output=/dev/null"}, options...), "--wrap=sleep 600")...)
	if err != nil {
		t.Fatal(err)
	}
	id := strings.TrimSpace(out)
	s.await(t, "job "+id+" runs", func() error {
		if jobs := s.jobs(t); !slices.ContainsFunc(jobs,
			func(j job) bool { return j.id == id && j.state == "RUNNING" }) {
			return fmt.Errorf("%v", jobs)
		}
		return nil
	})
	return id
}

func (s *site) root(t *testing.T, words ...string) string {
	t.Helper()
	out, err := s.slurm.Slurm(s.ctx, "root", words[0], words[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// machines are how many a VM has, on all hosts.
func (s *site) machines(t *testing.T, vm fleet.VM) (n int) {
	t.Helper()
	for _, h := range s.farm.Hosts {
		domains, err := h.Virsh(s.ctx, "list", "--name")
		if err != nil {
			t.Fatal(err)
		}
		n += strings.Count(domains, vm.ID[:13])
	}
	return n
}
