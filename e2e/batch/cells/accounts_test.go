package cells_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/batch/slurmlab"
	"github.com/grange-project/grange/e2e/farm/farmlab"
)

// accounts: what has run on the hosts without a VM, in all cases before this one and now, is in the fleet's accounts as
// Slurm has it, each job once, over a kill of the server. The jobs that held the places of VMs are not: their VMs are.
func (s *site) accounts(t *testing.T) {
	s.create(t, "box", "--wait")
	const jobs, burn = 12, `--wrap=i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done`
	submit := func() {
		if _, err := s.slurm.Slurm(s.ctx, slurmlab.User, "sbatch", "--output=/dev/null", "--mem=50M",
			burn); err != nil {
			t.Fatal(err)
		}
	}
	for range jobs / 2 {
		submit()
	}
	s.farm.Servers[0].Kill()
	if err := s.farm.Servers[0].Start(s.ctx); err != nil {
		t.Fatal(err)
	}
	for range jobs / 2 {
		submit()
	}
	s.delete(t, "box")
	if err := farmlab.Await(s.ctx, 5*time.Minute, "the jobs have ended", func() (bool, error) {
		left, err := s.squeue()
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d are left", len(left))
		}
		return err == nil, err
	}); err != nil {
		t.Fatal(err)
	}
	var want map[string]slurmlab.Accounted
	s.await(t, "slurmdbd knows all", func() (err error) {
		if want, err = s.slurm.Accounted(s.ctx); err == nil && len(want) < jobs {
			err = fmt.Errorf("%d of %d", len(want), jobs)
		}
		return err
	})
	// the server asks once a minute, and slurmdbd may know a job by halves for two
	if err := farmlab.Await(s.ctx, 5*time.Minute, "all jobs are in the accounts", func() (bool, error) {
		if n := len(s.metal(t)); n < len(want) {
			return false, fmt.Errorf("%d of %d", n, len(want))
		}
		return true, nil
	}); err != nil {
		t.Fatal(err)
	}
	got := s.metal(t)
	var burnt float64
	for id, w := range want {
		g, ok := got[id]
		burnt += g.CPU
		if !ok || g.Cores != w.Cores || math.Abs(g.Wall-w.Wall) > 0.5 || math.Abs(g.CPU-w.CPU) > 0.01 {
			t.Errorf("job %s is %+v, and in the accounts %+v, %v", id, w, g, ok)
		}
	}
	if len(got) != len(want) || burnt == 0 {
		t.Errorf("%d jobs in the accounts, %d of Slurm, of %g s of CPU time", len(got), len(want), burnt)
	}
}

// metal are the jobs without a VM that the fleet's accounts have.
func (s *site) metal(t *testing.T) map[string]slurmlab.Accounted {
	t.Helper()
	all := map[string]slurmlab.Accounted{}
	for line := range strings.Lines(s.grange(t, "usage export --format json --kind metal --month "+
		time.Now().UTC().Format("2006-01"))) {
		var u api.Usage
		if err := json.Unmarshal([]byte(line), &u); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		run := slurmlab.Run(strings.TrimPrefix(u.Batch, "slurm/"), u.Start)
		if _, twice := all[run]; twice {
			t.Errorf("run %s is there twice", run)
		}
		all[run] = slurmlab.Accounted{Cores: u.Cores, Wall: u.Wall}
		if u.CPU != nil {
			all[run] = slurmlab.Accounted{Cores: u.Cores, Wall: u.Wall, CPU: *u.CPU}
		}
	}
	return all
}
