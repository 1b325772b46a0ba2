package runner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/systems"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/runner/runnertest"
)

// wrapper is the command line of `grange exec --batch`, as far as tests have it.
type wrapper struct {
	system  farm.BatchSystem
	image   string
	binds   []string
	prologs []string
	stdin   *os.File // nil: ours
}

func (w wrapper) job(t *testing.T, socket string, notes io.Writer, argv []string) (*Job, error) {
	t.Helper()
	o := Options{Socket: socket, Stdin: w.stdin, Stdout: os.Stdout, Stderr: os.Stderr, Notes: notes,
		Batch: &Batch{Kind: kindOf(w.system), Requeues: config.DefaultRequeues, Prologs: w.prologs}}
	if o.Stdin == nil {
		o.Stdin = os.Stdin
	}
	for _, text := range w.binds {
		b, err := ParseBind(text)
		if err != nil {
			t.Fatal(err)
		}
		o.Binds = append(o.Binds, b)
	}
	return New(api.JobRequest{Image: w.image, Argv: argv}, o)
}

// run runs the job, and returns the status it would end with and all that it says, with the codes of errors.
func (w wrapper) run(t *testing.T, socket string, argv ...string) (status int, errs string) {
	t.Helper()
	var b bytes.Buffer
	j, err := w.job(t, socket, &b, argv)
	if err != nil {
		t.Fatal(err)
	}
	result := j.Run(t.Context())
	if result.Signal != 0 {
		t.Fatalf("%+v", result)
	}
	for _, err := range []error{result.Err, result.Note} {
		if err != nil {
			fmt.Fprintf(&b, "%v [%s]\n", err, codeOf(err))
		}
	}
	return result.Status, b.String()
}

// TestBatchNotStarted: each system gets what makes it try again, until the bound; what makes no sense is not tried
// again.
func TestBatchNotStarted(t *testing.T) {
	problem := func(status int, code string) *api.Problem {
		return &api.Problem{Type: "grange:" + code, Status: status, Detail: "no: " + code}
	}
	ad := filepath.Join(t.TempDir(), "ad")
	starts := func(n string) func() {
		return func() {
			os.WriteFile(ad, []byte("MyType = \"Job\"\nNumShadowStarts = "+n+"\nOwner = \"ann\"\n"), 0o600)
		}
	}
	for name, c := range map[string]struct {
		system farm.BatchSystem
		env    map[string]string
		before func()
		grant  any
		job    any
		want   int
		says   string
	}{
		"slurm":             {system: "slurm", want: 199, says: "[guest-silent]"},
		"slurm, third time": {system: "slurm", env: map[string]string{"SLURM_RESTART_COUNT": "1"}, want: 199},
		"slurm, once too often": {system: "slurm", env: map[string]string{"SLURM_RESTART_COUNT": "2"}, want: 197,
			says: "[vm-never-starts]"},
		"grid engine":            {system: "gridengine", env: map[string]string{"RESTARTED": "0"}, want: 99},
		"grid engine again":      {system: "gridengine", env: map[string]string{"RESTARTED": "1"}, want: 197},
		"condor":                 {system: "htcondor", before: starts("1"), want: 199},
		"condor again":           {system: "htcondor", before: starts("2"), want: 199},
		"condor, once too often": {system: "htcondor", before: starts("3"), want: 197},
		"pbs":                    {system: "pbs", env: map[string]string{"SLURM_RESTART_COUNT": "9"}, want: 199},
		"lsf":                    {system: "lsf", want: 199},
		"no requeues":            {system: "slurm", grant: api.Grant{}, want: 197, says: "[vm-never-starts]"},
		"the wrong system": {system: "slurm", job: problem(403, "wrong-batch"), want: 199,
			says: "[wrong-batch]"},
		"no room":       {system: "slurm", job: problem(503, "no-room"), want: 199},
		"no such image": {system: "slurm", job: problem(404, "no-image"), want: 197},
		"never fits":    {system: "lsf", job: problem(400, "too-big"), want: 197},
		"not allowed": {system: "slurm", job: problem(403, "not-allowed"), want: 197,
			says: "[not-allowed]"},
		"not allowed, told earlier": {system: "gridengine", grant: problem(403, "not-allowed"), want: 197},
		"an agent in trouble":       {system: "gridengine", grant: problem(500, "internal"), want: 99},
	} {
		t.Run(name, func(t *testing.T) {
			for _, key := range []string{"SLURM_RESTART_COUNT", "RESTARTED"} {
				t.Setenv(key, "")
			}
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			t.Setenv("_CONDOR_JOB_AD", ad)
			if c.before != nil {
				c.before()
			}
			if c.grant == nil {
				c.grant = api.Grant{Requeues: 2}
			}
			status, errs := wrapper{system: c.system}.run(t, runnertest.Start(t, c.grant, c.job).Socket, "true")
			if status != c.want || !strings.Contains(errs, c.says) {
				t.Errorf("status %d, want %d; says %q, want %q in it", status, c.want, errs, c.says)
			}
		})
	}
}

// TestBatchAgentGoes: an agent that goes while it makes the VM is waited for as long as it had said, for nothing of the
// job has run.
func TestBatchAgentGoes(t *testing.T) {
	var f *runnertest.Agent
	f = runnertest.Start(t, api.Grant{Requeues: 1, WaitTimeout: 300}, func(w http.ResponseWriter) {
		json.NewEncoder(w).Encode(api.JobEvent{Event: api.EventVM,
			VM: &api.VM{ID: "1", Name: "grange-1", JobPort: f.Socket}})
		http.NewResponseController(w).Flush()
	})
	f.Goes = true
	began := time.Now()
	status, errs := wrapper{system: farm.Slurm}.run(t, f.Socket, "true")
	if took := time.Since(began); status != 199 || !strings.Contains(errs, api.ErrNoAgent.Error()) ||
		took < 300*time.Millisecond || took > agentTimeout {
		t.Errorf("status %d after %v, %q", status, took, errs)
	}
}

// TestBatchRequest is what the agent is asked for: the script, the site's directories and the job's own, the
// environment.
func TestBatchRequest(t *testing.T) {
	top := t.TempDir()
	dir := func(name string) string {
		d := filepath.Join(top, name)
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		return d
	}
	home, spool, work, mine := dir("home"), dir("spool"), dir("work"), dir("mine")
	script := filepath.Join(spool, "slurm_script")
	prolog := filepath.Join(spool, "prolog")
	for _, path := range []string{script, prolog, filepath.Join(home, "tool")} {
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho "+filepath.Base(path)+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(work)
	t.Setenv("TMPDIR", "/tmp/job.7")
	t.Setenv("TMP", "/tmp/job.7")
	t.Setenv("TEMP", "/elsewhere")
	t.Setenv("PATH", "/tmp/job.7:/usr/bin:/bin")
	t.Setenv("SGE_STARTER_SHELL_PATH", "/bin/sh")
	t.Setenv("BIG", strings.Repeat("x", 127<<10))
	f := runnertest.Start(t, api.Grant{Batch: "slurm", Binds: []string{home, top + "/none", home + ":/also:ro"},
		Requeues: 3}, nil)
	wrapper{system: farm.Slurm, binds: []string{mine + ":/mine"}, prologs: []string{prolog}, image: "el9"}.run(t,
		f.Socket, script, "a", "b c")
	got := f.Request
	if got == nil {
		t.Fatal("never asked")
	}
	if got.Image != "el9" || got.Batch != "slurm" || !got.Heartbeats || got.Dir != work || got.CPUs != 0 ||
		got.Memory != 0 || !slices.Equal(got.Argv, []string{script, "a", "b c"}) {
		t.Errorf("%+v", got)
	}
	if got.Script == nil || got.Script.Path != script ||
		!strings.Contains(string(got.Script.Content), "echo slurm_script") {
		t.Errorf("script: %+v", got.Script)
	}
	if len(got.Prologs) != 1 || got.Prologs[0].Path != prolog {
		t.Errorf("prologs: %+v", got.Prologs)
	}
	for i := range got.Binds {
		got.Binds[i].FD = 0 // some number
	}
	want := []api.Bind{{Target: "/also", ReadOnly: true}, {Target: "/mine"}, {Target: home}, {Target: work}}
	if d := cmp.Diff(want, got.Binds); d != "" {
		t.Errorf("binds (-want +got):\n%s", d)
	}
	for _, kv := range []string{"TMPDIR=/tmp", "TMP=/tmp", "TEMP=/elsewhere", "PATH=/tmp:/usr/bin:/bin", "BIG=" + strings.Repeat("x", 127<<10)} {
		if !slices.Contains(got.Env, kv) {
			t.Errorf("the environment lacks %.20s", kv)
		}
	}
	wrapper{system: farm.GridEngine}.run(t, f.Socket, filepath.Join(home, "tool"))
	if slices.Contains(f.Request.Env, "SGE_STARTER_SHELL_PATH=/bin/sh") {
		t.Error("the job has a variable of Grid Engine's starter")
	}
	t.Setenv("TMPDIR", "")
	wrapper{system: farm.Slurm}.run(t, f.Socket, filepath.Join(home, "tool"))
	if !slices.Contains(f.Request.Env, "TMPDIR=/tmp") {
		t.Errorf("without TMPDIR, the environment is %q", f.Request.Env)
	}
	if f.Request.Script != nil {
		t.Errorf("sent a file that the VM sees: %s", f.Request.Script.Path)
	}
	wrapper{system: farm.Slurm}.run(t, f.Socket, "/bin/sh", "-c", "true")
	if f.Request.Script != nil {
		t.Errorf("sent a program that is the image's: %s", f.Request.Script.Path)
	}
	if _, err := (wrapper{system: farm.Slurm, prologs: []string{top + "/nosuch"}}).job(t, f.Socket, io.Discard,
		[]string{"true"}); codeOf(err) != farm.CodeJobNotStarted || !strings.Contains(err.Error(), "prolog") {
		t.Errorf("a prolog that is not there: %v", err)
	}
	if err := os.Truncate(script, maxScript+1); err != nil {
		t.Fatal(err)
	}
	if status, errs := (wrapper{system: farm.Slurm}).run(t, f.Socket, script); status != 197 ||
		!strings.Contains(errs, "[script-too-big]") {
		t.Errorf("a script of 64M: status %d, %q", status, errs)
	}
}

// TestPBSScript: the shell's input is a line with the script's path; the script is sent, and the shell reads the line
// again.
func TestPBSScript(t *testing.T) {
	script := filepath.Join(t.TempDir(), "7.SC")
	if err := os.WriteFile(script, []byte("exit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir("/")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	io.WriteString(w, script+"\nmore")
	w.Close()
	f := runnertest.Start(t, api.Grant{Requeues: 3}, nil)
	if status, errs := (wrapper{system: farm.PBS, stdin: r}).run(t, f.Socket, "/bin/bash"); status != 199 {
		t.Fatalf("status %d: %s", status, errs)
	}
	if got := f.Request; got.Script == nil || got.Script.Path != script || string(got.Script.Content) != "exit 3\n" ||
		!slices.Equal(got.Argv, []string{"/bin/bash"}) {
		t.Errorf("%+v", got)
	}
	if rest, _ := io.ReadAll(r); string(rest) != "more" {
		t.Errorf("%q is left on the input, want what follows the line", rest)
	}
}

func TestBatchCommand(t *testing.T) {
	for _, c := range []struct {
		system    farm.BatchSystem
		argv, out []string
	}{
		{farm.LSF, []string{"echo a; echo b"}, []string{"/bin/sh", "-c", "echo a; echo b"}},
		{farm.LSF, []string{"./analyse"}, []string{"./analyse"}},
		{farm.LSF, []string{"echo", "a; b"}, []string{"echo", "a; b"}},
		{farm.Slurm, []string{"/a b/script"}, []string{"/a b/script"}},
	} {
		if got := command(kindOf(c.system).Wrapper, c.argv); !slices.Equal(got, c.out) {
			t.Errorf("%s %q: %q, want %q", c.system, c.argv, got, c.out)
		}
	}
}

func kindOf(s farm.BatchSystem) batch.Kind {
	kind, _ := systems.Find(s)
	return kind
}
