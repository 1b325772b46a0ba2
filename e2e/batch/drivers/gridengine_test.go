package drivers_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/e2e/batch/gridenginelab"
	"github.com/grange-project/grange/internal/allotment"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/batchtest"
	"github.com/grange-project/grange/internal/batch/gridengine"
	"github.com/grange-project/grange/internal/batch/systems"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// TestGridEngine runs the contract on a cell of two hosts.
func TestGridEngine(t *testing.T) {
	if os.Getenv("GRANGE_BATCH") == "" {
		t.Skip("needs Grid Engine: `make test-batch` installs it and runs this")
	}
	t.Parallel() // each with a system of its own, which mostly waits
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	l, err := gridenginelab.Start(ctx, gridenginelab.Options{Bare: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := l.Command(context.Background(), "qstat", "-f", "-u", "*")
			t.Log(out, l.Messages())
		}
	})
	if err := l.AddSecond(ctx); err != nil {
		t.Fatal(err)
	}
	c := &gridCell{l: l, ctx: ctx}
	c.prepare(t)
	options := gridengine.DriverOptions{Accounting: l.Accounting(), Projects: true, Parallel: "smp",
		Wishes: map[string]batch.Demand{feature: {Image: "sl9", Shape: "big"}}}
	cell := &gridengine.Cell{Run: l.Run(program.Start)}
	batchtest.Run(t, batchtest.Lab{
		Open:  func(*testing.T) batch.System { return gridengine.NewDriver(cell, options) },
		Hosts: [2]string{gridenginelab.Master, gridenginelab.Second}, Account: "physics", Queue: gridenginelab.Queue,
		Pend: c.pend, Run: c.start, Finish: c.finish, Cancel: c.cancel, NoReasons: true,
		AdminClose: func(t *testing.T, host, _ string) { c.do(t, "qmod", "-d", "*@"+host) },
		AdminOpen:  func(t *testing.T, host string) { c.do(t, "qmod", "-e", "*@"+host) },
	})
	t.Run("a daemon of a job", c.daemon)
}

// daemon: a process of a job that left its shepherd's tree is of the job still.
func (c *gridCell) daemon(t *testing.T) {
	path := filepath.Join(c.l.Home(), "daemon")
	id := c.submitScript(t, "setsid -f sh -c 'echo $$ >"+path+".new; mv "+path+".new "+path+"; exec sleep 300'; "+
		"sleep 300\n", "-l", "h_vmem=700M", "-pe", "smp", "2")
	var pid int
	c.until(t, "the daemon runs", func() bool {
		text, err := os.ReadFile(path)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	got, err := systems.JobOf(allotment.Host(), pid)
	if err != nil || got.Job != id || got.System != farm.GridEngine || got.Slots != 2 || got.Memory != 1400*farm.MiB ||
		got.Account != "physics" || got.Queue != gridenginelab.Queue || got.Group == 0 {
		t.Errorf("it is taken for %+v, %v", got, err)
	}
	c.cancel(t, id)
}

// gridCell is what users and administrators of a cell do.
type gridCell struct {
	l   *gridenginelab.Lab
	ctx context.Context
}

func (c *gridCell) do(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := c.l.Command(c.ctx, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// prepare has the cell be as sites are: one limit of slots a host over all its queues, a project, and a complex for
// images.
func (c *gridCell) prepare(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "object")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, host := range []string{gridenginelab.Master, gridenginelab.Second} {
		c.do(t, "qconf", "-mattr", "exechost", "complex_values", "slots=2", host)
	}
	c.do(t, "qconf", "-Aprj", write("name physics\noticket 0\nfshare 0\nacl NONE\nxacl NONE\n"))
	c.do(t, "qconf", "-Mc", write(c.do(t, "qconf", "-sc")+"vmimages vmimages RESTRING == YES NO NONE 0\n"))
	for _, host := range []string{gridenginelab.Master, gridenginelab.Second} {
		c.do(t, "qconf", "-aattr", "exechost", "complex_values", "vmimages=none", host)
	}
}

func (c *gridCell) submit(t *testing.T, j batchtest.Job, more ...string) string {
	t.Helper()
	var args []string
	if j.Limit > 0 {
		args = append(args, "-l", fmt.Sprintf("h_rt=%d", int(j.Limit.Seconds())))
	}
	if j.CPUs > 1 {
		args = append(args, "-pe", "smp", fmt.Sprint(j.CPUs))
	}
	if j.Memory > 0 {
		args = append(args, "-l", fmt.Sprintf("h_vmem=%dM", int(j.Memory>>20)/max(j.CPUs, 1)))
	}
	if j.Image != "" {
		args = append(args, "-l", "vmimages=*"+feature+"*")
	}
	return c.submitScript(t, "while [ ! -e end.$JOB_ID ]; do sleep 0.1; done; exit $(cat end.$JOB_ID)\n",
		append(args, more...)...)
}

func (c *gridCell) submitScript(t *testing.T, text string, options ...string) string {
	t.Helper()
	script := filepath.Join(c.l.Home(), "job.sh")
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{"-terse", "-wd", c.l.Home(), "-o", "/dev/null", "-j", "y", "-q", gridenginelab.Queue,
		"-P", "physics"}
	out, err := c.l.AsUser(c.ctx, "qsub", append(append(args, options...), script)...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// state is the job's letters; "" when the master does not know it.
func (c *gridCell) state(t *testing.T, id string) string {
	for line := range strings.Lines(c.do(t, "qstat", "-u", "*")) {
		if f := strings.Fields(line); len(f) > 4 && f[0] == id {
			return f[4]
		}
	}
	return ""
}

func (c *gridCell) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s; %s", what, c.do(t, "qstat", "-u", "*"))
		}
	}
}

// pend asks for a host of a kind that there is none of.
func (c *gridCell) pend(t *testing.T, j batchtest.Job) string {
	return c.submit(t, j, "-l", "arch=none")
}

func (c *gridCell) start(t *testing.T, host string, j batchtest.Job) string {
	id := c.submit(t, j, "-l", "hostname="+host)
	c.until(t, "job "+id+" runs", func() bool { return c.state(t, id) == "r" })
	return id
}

func (c *gridCell) finish(t *testing.T, id string, status int) {
	path := filepath.Join(c.l.Home(), "end."+id)
	if err := os.WriteFile(path+".new", fmt.Appendln(nil, status), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	c.until(t, "job "+id+" is over", func() bool { return c.state(t, id) == "" })
}

func (c *gridCell) cancel(t *testing.T, id string) {
	c.do(t, "qdel", id)
	c.until(t, "job "+id+" is gone", func() bool { return c.state(t, id) == "" })
}
