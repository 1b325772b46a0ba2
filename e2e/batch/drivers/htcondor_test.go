package drivers_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/e2e/batch/condorlab"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/batchtest"
	"github.com/grange-project/grange/internal/batch/htcondor"
)

// TestHTCondor runs the contract on a pool of two machines.
func TestHTCondor(t *testing.T) {
	if os.Getenv("GRANGE_BATCH") == "" {
		t.Skip("needs a Debian tree with HTCondor: `make test-batch` makes one and runs this")
	}
	t.Parallel() // as the others
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	// Jobs here are on the host: what is asked is HTCondor.
	l, err := condorlab.Start(ctx, condorlab.Options{CPUs: 4, Metal: htcondor.MetalDefault})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := l.AddSecond(ctx); err != nil {
		t.Fatal(err)
	}
	p := &pool{l: l, ctx: ctx}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(l.Logs())
		}
	})
	batchtest.Run(t, batchtest.Lab{
		Open: func(*testing.T) batch.System {
			return htcondor.NewDriver(htcondor.DriverOptions{History: l.History(), ReserveAs: "nobody"}, l.Run())
		},
		Hosts: [2]string{condorlab.First, condorlab.Second}, Account: "physics",
		Pend: p.pend, Run: p.start, Finish: p.finish, Cancel: p.cancel,
		AdminClose: func(t *testing.T, host, reason string) {
			p.do(t, "condor_drain", "-reason", reason, p.address(t, host))
			p.until(t, host+" is drained", func() bool {
				return p.do(t, "condor_status", "-af", "DrainReason", "-constraint",
					fmt.Sprintf("Machine == %q", host)) == reason
			})
		},
		AdminOpen: func(t *testing.T, host string) {
			l.Condor(ctx, "root", "condor_drain", "-cancel", p.address(t, host)) // an error: it is not drained
			p.do(t, "condor_config_val", "-startd", "-address", p.address(t, host), "-set", `GrangeClosed = ""`)
			p.do(t, "condor_reconfig", "-addr", p.address(t, host))
			p.until(t, host+" is open", func() bool {
				out, _ := l.Condor(ctx, "root", "condor_status", "-af", "State", "GrangeClosed", "-constraint",
					fmt.Sprintf("Machine == %q", host))
				return strings.TrimSpace(out) == "Unclaimed"
			})
		},
	})
}

// pool is what users and administrators do.
type pool struct {
	l   *condorlab.Lab
	ctx context.Context
	n   int
}

func (p *pool) do(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := p.l.Condor(p.ctx, "root", name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// address is that of a host's startd: HTCondor asks the resolver for names, which knows none here.
func (p *pool) address(t *testing.T, host string) string {
	t.Helper()
	address, _, _ := strings.Cut(p.do(t, "condor_status", "-af", "MyAddress", "-constraint",
		fmt.Sprintf("Machine == %q", host)), "\n")
	return address
}

func (p *pool) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			slots, _ := p.l.Condor(p.ctx, "root", "condor_status", "-af", "Name", "SlotType", "State", "Activity",
				"JobId", "Cpus", "TotalSlotCpus", "GrangeClosed", "DrainReason")
			queue, _ := p.l.Condor(p.ctx, "root", "condor_q", "-allusers", "-af", "ClusterId", "JobStatus",
				"RemoteHost")
			t.Fatalf("never: %s\n%s\n%s", what, slots, queue)
		}
	}
}

// submit queues a job that ends when a file says with what status.
func (p *pool) submit(t *testing.T, j batchtest.Job, requirements string) string {
	t.Helper()
	p.n++
	base := filepath.Join(p.l.Home(), fmt.Sprintf("contract-%d", p.n))
	lines := []string{"executable = " + base + ".sh", "transfer_executable = False", "should_transfer_files = NO",
		"initialdir = " + p.l.Home(), "accounting_group = physics", "arguments = $(Cluster)",
		fmt.Sprintf("request_cpus = %d", max(j.CPUs, 1)), "request_memory = 100", "requirements = " + requirements}
	if j.Memory > 0 {
		lines = append(lines, fmt.Sprintf("request_memory = %d", j.Memory>>20))
	}
	if j.Limit > 0 {
		lines = append(lines, fmt.Sprintf("allowed_job_duration = %d", int(j.Limit.Seconds())))
	}
	if j.Image != "" {
		lines = append(lines, fmt.Sprintf("+VMImage = %q\n+VMShape = %q", j.Image, j.Shape))
	}
	script := "#!/bin/sh\nwhile [ ! -e end.$1 ]; do sleep 0.1; done; exit $(cat end.$1)\n"
	for name, text := range map[string]string{base + ".sh": script,
		base + ".sub": strings.Join(lines, "\n") + "\nqueue\n"} {
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	out, err := p.l.Condor(p.ctx, "nobody", "condor_submit", "-terse", base+".sub")
	if err != nil {
		t.Fatal(err)
	}
	id, _, _ := strings.Cut(out, " ")
	return condorlab.First + "#" + id
}

func local(id string) string { return strings.TrimPrefix(id, condorlab.First+"#") }

// status is JobStatus, "" for a job that has left the queue, and a word when the schedd is busy.
func (p *pool) status(id string) string {
	out, err := p.l.Condor(p.ctx, "root", "condor_q", local(id), "-af", "JobStatus")
	if err != nil {
		return "busy"
	}
	return strings.TrimSpace(out)
}

// pend queues what no host matches: the pool stays idle, and the job is wanted.
func (p *pool) pend(t *testing.T, j batchtest.Job) string {
	return p.submit(t, j, "Machine == \"later\"")
}

func (p *pool) start(t *testing.T, host string, j batchtest.Job) string {
	id := p.submit(t, j, fmt.Sprintf("Machine == %q", host))
	p.until(t, "job "+id+" runs", func() bool { return p.status(id) == "2" })
	return id
}

func (p *pool) finish(t *testing.T, id string, status int) {
	cluster, _, _ := strings.Cut(local(id), ".")
	path := filepath.Join(p.l.Home(), "end."+cluster)
	if err := os.WriteFile(path+".new", fmt.Appendln(nil, status), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	p.gone(t, id)
}

func (p *pool) cancel(t *testing.T, id string) {
	p.do(t, "condor_rm", local(id))
	p.gone(t, id)
}

// gone waits until the job has left the queue and the ads of its host: those lag by seconds, and a slot stays claimed
// for a while.
func (p *pool) gone(t *testing.T, id string) {
	p.until(t, "job "+id+" is over", func() bool { return p.status(id) == "" })
	p.until(t, "the slot of job "+id+" is free", func() bool {
		given := map[string]int{} // CPUs by host: all, less what is left and what jobs have
		for line := range strings.Lines(p.do(t, "condor_status", "-af", "Machine", "Cpus", "TotalSlotCpus",
			"-constraint", "PartitionableSlot")) {
			var host string
			var cpus, total int
			if n, _ := fmt.Sscan(line, &host, &cpus, &total); n != 3 {
				return false
			}
			given[host] += total - cpus
		}
		out, err := p.l.Condor(p.ctx, "root", "condor_q", "-allusers", "-af", "RemoteHost", "RequestCpus")
		for line := range strings.Lines(out) {
			var slot string
			var cpus int
			if n, _ := fmt.Sscan(line, &slot, &cpus); n == 2 && slot != "undefined" {
				_, host, _ := strings.Cut(slot, "@")
				given[host] -= cpus
			}
		}
		if err != nil {
			return false
		}
		return given[condorlab.First] == 0 && given[condorlab.Second] == 0
	})
}
