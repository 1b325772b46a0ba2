// Package drivers_test runs the contract of batch drivers against real batch systems.
package drivers_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/e2e/batch/slurmlab"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/batchtest"
	"github.com/grange-project/grange/internal/batch/slurm"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

const (
	other   = "grangeb" // the second node
	feature = "sl9-big"
)

// TestSlurm runs the contract on a Slurm with two nodes and slurmdbd.
func TestSlurm(t *testing.T) {
	if os.Getenv("GRANGE_BATCH") == "" {
		t.Skip("needs a database: `make test-batch` installs one and runs this")
	}
	t.Parallel() // each with a system of its own, which mostly waits
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	l, err := slurmlab.Start(ctx, slurmlab.Options{NoPlugin: true, Accounting: true, CPUs: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	// A node more: slurmctld takes one in when it starts.
	l.Reconfigure(ctx, fmt.Sprintf("NodeName=%s NodeHostname=%s NodeAddr=127.0.0.1 Port=%d CPUs=4 RealMemory=6000 "+
		"Feature=%s State=UNKNOWN\n"+
		"PartitionName=two Nodes=ALL MaxTime=INFINITE State=UP OverSubscribe=NO", other, host, port, feature))
	if err := l.KillDaemon("slurmctld"); err != nil {
		t.Fatal(err)
	}
	if err := l.StartSlurmctld(ctx); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(l.Dir(), "spool", other), 0o755); err != nil {
		t.Fatal(err)
	}
	daemon := l.Command(context.WithoutCancel(ctx), "root", "slurmd", "-D", "-N", other)
	var said bytes.Buffer
	daemon.Stdout, daemon.Stderr = &said, &said
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { daemon.Process.Kill(); daemon.Wait() })
	s := &cluster{l: l, ctx: ctx}
	options := slurm.DriverOptions{Env: []string{"SLURM_CONF=" + l.Conf()},
		Wishes: map[string]batch.Demand{feature: {Image: "sl9", Shape: "big"}}}
	run := program.Run(program.Start)
	if dir := os.Getenv("GRANGE_RECORD"); dir != "" {
		run = record(dir)
	}
	open := func(*testing.T) batch.System { return slurm.NewDriver(options, run) }
	t.Cleanup(func() {
		if t.Failed() {
			out, err := l.Slurm(context.Background(), "root", "scontrol", "show", "nodes")
			t.Logf("%s\n%v\nslurmctld: %s\n%s", out, err, l.Log("slurmctld"), said.String())
		}
	})
	s.until(t, "both nodes are idle", func() bool {
		nodes, err := open(t).Nodes(ctx)
		return err == nil && len(nodes) == 2 && nodes[0].State == batch.NodeIdle && nodes[1].State == batch.NodeIdle
	})
	s.do(t, "sacctmgr", "-i", "add", "user", "root", "Account=physics", "DefaultAccount=physics") // who reserves
	batchtest.Run(t, batchtest.Lab{
		Open: open, Hosts: [2]string{l.Node(), other}, Account: "physics", Queue: "two",
		Pend: s.pend, Run: s.start, Finish: s.finish, Cancel: s.cancel,
		AdminClose: func(t *testing.T, host, reason string) {
			s.do(t, "scontrol", "update", "nodename="+host, "state=drain", "reason="+reason)
		},
		AdminOpen: func(t *testing.T, host string) { s.do(t, "scontrol", "update", "nodename="+host, "state=undrain") },
	})
	t.Run("comments", func(t *testing.T) { s.comments(t, open(t).(batch.Commenter)) })
}

// comments: of a job that runs and of one that has ended; the last one counts, and the end of the job leaves it there.
func (c *cluster) comments(t *testing.T, d batch.Commenter) {
	job := c.start(t, other, batchtest.Job{})
	comment := func(text string) {
		t.Helper()
		c.until(t, "slurmdbd has heard of the job", func() bool { return d.Comment(c.ctx, job, text) == nil })
	}
	shown := func(want string) {
		t.Helper()
		out, err := c.l.Slurm(c.ctx, "root", "sacct", "-XPnj", job, "--format=AdminComment")
		if err != nil || strings.TrimSpace(out) != want {
			t.Errorf("%q, %v; want %q", out, err, want)
		}
	}
	comment("grange: vms=1 ended=exit:0")
	shown("grange: vms=1 ended=exit:0")
	c.finish(t, job, 0)
	shown("grange: vms=1 ended=exit:0")
	comment("grange: vms=2 job_cpu=1-02:00:00")
	shown("grange: vms=2 job_cpu=1-02:00:00")
	if err := d.Comment(c.ctx, "987654", "x"); !farm.IsKind(err, farm.NotFound) {
		t.Errorf("a job that is none: %v", err)
	}
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// cluster is what users and administrators do.
type cluster struct {
	l       *slurmlab.Lab
	ctx     context.Context
	blocker string // holds both nodes, so that others wait
	waiting int
}

func (c *cluster) do(t *testing.T, name string, args ...string) {
	t.Helper()
	if _, err := c.l.Slurm(c.ctx, "root", name, args...); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func (c *cluster) submit(t *testing.T, j batchtest.Job, more ...string) string {
	t.Helper()
	minutes := "UNLIMITED"
	if j.Limit > 0 {
		minutes = fmt.Sprint(int(j.Limit / time.Minute))
	}
	args := []string{"--parsable", "--account=physics", "--partition=two", "--ntasks=1",
		fmt.Sprintf("--cpus-per-task=%d", max(j.CPUs, 1)), "--time=" + minutes, "--output=/dev/null",
		"--chdir=" + c.l.Home()}
	if j.Image != "" {
		args = append(args, "--constraint="+feature)
	}
	if j.Memory > 0 {
		args = append(args, fmt.Sprintf("--mem=%dM", j.Memory>>20))
	} else {
		args = append(args, "--mem=100M")
	}
	out, err := c.l.Slurm(c.ctx, slurmlab.User, "sbatch",
		append(append(args, more...),
			"--wrap=while [ ! -e end.$SLURM_JOB_ID ]; do sleep 0.1; done; exit $(cat end.$SLURM_JOB_ID)")...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func (c *cluster) state(t *testing.T, id string) string {
	t.Helper()
	out, err := c.l.Slurm(c.ctx, "root", "squeue", "--noheader", "--states=all", "--jobs="+id, "--format=%T")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(out)
}

func (c *cluster) pend(t *testing.T, j batchtest.Job) string {
	if c.waiting == 0 {
		c.blocker = c.submit(t, batchtest.Job{}, "--nodes=2", "--ntasks=2", "--exclusive")
		c.until(t, "the nodes are taken", func() bool { return c.state(t, c.blocker) == "RUNNING" })
	}
	c.waiting++
	return c.submit(t, j)
}

func (c *cluster) start(t *testing.T, host string, j batchtest.Job) string {
	id := c.submit(t, j, "--nodelist="+host)
	c.until(t, "job "+id+" runs", func() bool { return c.state(t, id) == "RUNNING" })
	return id
}

func (c *cluster) finish(t *testing.T, id string, status int) {
	path := filepath.Join(c.l.Home(), "end."+id)
	if err := os.WriteFile(path+".new", fmt.Appendln(nil, status), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	c.gone(t, id)
}

func (c *cluster) gone(t *testing.T, id string) {
	c.until(t, "job "+id+" is over", func() bool {
		switch c.state(t, id) {
		case "PENDING", "RUNNING", "COMPLETING", "CONFIGURING":
			return false
		}
		return true
	})
}

func (c *cluster) cancel(t *testing.T, id string) {
	c.do(t, "scancel", id)
	c.gone(t, id)
	if c.waiting > 0 && c.blocker != "" && c.state(t, id) != "RUNNING" {
		if c.waiting--; c.waiting == 0 {
			c.do(t, "scancel", c.blocker)
			c.gone(t, c.blocker)
			c.blocker = ""
		}
	}
}

// record writes down what Slurm's commands print, for the tests of the parsers: each command's last answer to each kind
// of question.
func record(dir string) program.Run {
	return func(ctx context.Context, call program.Call) ([]byte, error) {
		out, err := program.Start(ctx, call)
		if len(out) > 0 {
			kind := ""
			for _, a := range call.Args {
				if strings.Contains(a, "PENDING") || a == "--me" || strings.HasPrefix(a, "--nodelist") ||
					strings.HasPrefix(a, "--jobs") {
					kind += strings.Trim(strings.ReplaceAll(strings.Split(a, "=")[0], "--", "-"), " ")
				}
			}
			os.WriteFile(filepath.Join(dir, call.Path+kind+".txt"), out, 0o644)
		}
		return out, err
	}
}
