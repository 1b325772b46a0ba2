package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/systems"
	"github.com/grange-project/grange/internal/farm"
)

// fakeAgent answers a wrapper on a socket of its own, and keeps what it asked for.
type fakeAgent struct {
	socket  string
	grant   any  // an api.Grant or *api.Problem
	job     any  // *api.Problem; func(http.ResponseWriter); or nil: the job fails as one whose VM came to nothing
	goes    bool // after that
	server  *http.Server
	request *api.JobRequest
	asked   bool // for a grant
}

func startFakeAgent(t *testing.T, grant, job any) *fakeAgent {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ga") // short: it holds a unix socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	f := &fakeAgent{socket: filepath.Join(dir, "s"), grant: grant, job: job}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		if p, ok := v.(*api.Problem); ok {
			w.WriteHeader(p.Status)
		}
		json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("GET /v1/grant", func(w http.ResponseWriter, _ *http.Request) { f.asked = true; answer(w, f.grant) })
	mux.HandleFunc("POST /v1/jobs", func(w http.ResponseWriter, r *http.Request) {
		f.request = new(api.JobRequest)
		json.NewDecoder(r.Body).Decode(f.request)
		if play, ok := f.job.(func(http.ResponseWriter)); ok {
			play(w)
			if f.goes {
				f.server.Close()
			}
			return
		}
		if f.job != nil {
			answer(w, f.job)
			return
		}
		answer(w, api.JobEvent{Event: api.EventFailed,
			Problem: &api.Problem{Type: "grange:guest-silent", Status: 503, Detail: "the guest did not come up"}})
	})
	mux.HandleFunc("POST /v1/jobs/{id}/{what}",
		func(w http.ResponseWriter, r *http.Request) { answer(w, api.JobEnd{}) })
	listener, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	f.server = &http.Server{Handler: mux}
	go f.server.Serve(listener)
	t.Cleanup(func() { f.server.Close() })
	return f
}

// wrap runs the wrapper and returns the status it would end with.
func (f *fakeAgent) wrap(t *testing.T, flags execFlags, argv ...string) (status int, errs string) {
	t.Helper()
	var b bytes.Buffer
	a := &app{socket: f.socket, out: io.Discard, err: &b}
	var exit exitError
	if err := a.runBatch(&flags, argv); !errors.As(err, &exit) {
		t.Fatalf("%v", err)
	}
	return exit.status, b.String()
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
		system string
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
		"no room":       {system: "slurm", job: problem(429, "no-room"), want: 199},
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
			status, errs := startFakeAgent(t, c.grant, c.job).wrap(t, execFlags{batch: c.system, wait: true}, "true")
			if status != c.want || !strings.Contains(errs, c.says) {
				t.Errorf("status %d, want %d; says %q, want %q in it", status, c.want, errs, c.says)
			}
		})
	}
}

// TestBatchAgentGoes: an agent that goes while it makes the VM is waited for as long as it had said, for nothing of the
// job has run. A wrapper that is told nonsense, by a plug-in of another version perhaps, ends as one that runs no job.
func TestBatchNonsense(t *testing.T) {
	for _, args := range [][]string{
		{"exec", "--batch", "slurm", "--of-tomorrow", "--", "true"}, {"exec", "--batch", "slurm"},
		{"exec", "--batch", "tomorrows", "--", "true"},
		{"exec", "--batch", "slurm", "--wait", "--no-wait", "--", "true"},
	} {
		if got := Main(args); got != batch.ExitNever {
			t.Errorf("%q ends with status %d, want %d", args, got, batch.ExitNever)
		}
	}
	if got := Main([]string{"exec", "--of-tomorrow", "--", "true"}); got != exitUsage {
		t.Errorf("a senseless command line of somebody else ends with status %d, want %d", got, exitUsage)
	}
}

func TestBatchAgentGoes(t *testing.T) {
	var f *fakeAgent
	f = startFakeAgent(t, api.Grant{Requeues: 1, Patience: 300}, func(w http.ResponseWriter) {
		json.NewEncoder(w).Encode(api.JobEvent{Event: api.EventVM,
			VM: &api.VM{ID: "1", Name: "grange-1", JobPort: f.socket}})
		http.NewResponseController(w).Flush()
	})
	f.goes = true
	began := time.Now()
	status, errs := f.wrap(t, execFlags{batch: "slurm", wait: true}, "true")
	if took := time.Since(began); status != 199 || !strings.Contains(errs, "[no-agent]") ||
		took < 300*time.Millisecond || took > agentPatience {
		t.Errorf("status %d after %v, %q", status, took, errs)
	}
}

// TestBatchWithoutAgent must not start anything, and has the job tried again.
func TestBatchWithoutAgent(t *testing.T) {
	f := &fakeAgent{socket: filepath.Join(t.TempDir(), "none")}
	if status, errs := f.wrap(t, execFlags{batch: "slurm", wait: true, patience: 50 * time.Millisecond},
		"true"); status != 199 || !strings.Contains(errs, "[no-agent]") {
		t.Errorf("status %d, %q", status, errs)
	}
	if status, errs := f.wrap(t, execFlags{batch: "slurm", memory: "lots", wait: true}, "true"); status != 197 {
		t.Errorf("a size that is none: status %d, want 197: %s", status, errs)
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
	t.Setenv("BIG", strings.Repeat("x", 127<<10))
	f := startFakeAgent(t, api.Grant{Batch: "slurm", Binds: []string{home, top + "/none", home + ":/also:ro"},
		Requeues: 3}, nil)
	f.wrap(t, execFlags{batch: "slurm", wait: true, binds: []string{mine + ":/mine"}, prologs: []string{prolog},
		image: "el9"}, script, "a", "b c")
	got := f.request
	if got == nil {
		t.Fatal("never asked")
	}
	if got.Image != "el9" || got.Batch != "slurm" || !got.Beats || got.Dir != work || got.CPUs != 0 ||
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
	want := []api.Bind{{Target: "/also", ReadOnly: true}, {Target: "/mine"}, {Target: home}, {Target: work}}
	if d := cmp.Diff(want, got.Binds); d != "" {
		t.Errorf("binds (-want +got):\n%s", d)
	}
	for _, kv := range []string{"TMPDIR=/tmp", "TMP=/tmp", "TEMP=/elsewhere", "BIG=" + strings.Repeat("x", 127<<10)} {
		if !slices.Contains(got.Env, kv) {
			t.Errorf("the environment lacks %.20s", kv)
		}
	}
	f.wrap(t, execFlags{batch: "slurm", wait: true}, filepath.Join(home, "tool"))
	if f.request.Script != nil {
		t.Errorf("sent a file that the VM sees: %s", f.request.Script.Path)
	}
	f.wrap(t, execFlags{batch: "slurm", wait: true}, "/bin/sh", "-c", "true")
	if f.request.Script != nil {
		t.Errorf("sent a program that is the image's: %s", f.request.Script.Path)
	}
	if status, errs := f.wrap(t, execFlags{batch: "slurm", wait: true, prologs: []string{top + "/nosuch"}},
		"true"); status != 197 || !strings.Contains(errs, "prolog") {
		t.Errorf("a prolog that is not there: status %d, %q", status, errs)
	}
	if err := os.Truncate(script, maxScript+1); err != nil {
		t.Fatal(err)
	}
	if status, errs := f.wrap(t, execFlags{batch: "slurm", wait: true}, script); status != 197 ||
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
	stdin := os.Stdin
	t.Cleanup(func() { os.Stdin = stdin })
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	os.Stdin = r
	io.WriteString(w, script+"\nmore")
	w.Close()
	f := startFakeAgent(t, api.Grant{Requeues: 3}, nil)
	if status, errs := f.wrap(t, execFlags{batch: "pbs", wait: true}, "/bin/bash"); status != 199 {
		t.Fatalf("status %d: %s", status, errs)
	}
	if got := f.request; got.Script == nil || got.Script.Path != script || string(got.Script.Content) != "exit 3\n" ||
		!slices.Equal(got.Argv, []string{"/bin/bash"}) {
		t.Errorf("%+v", got)
	}
	if rest, _ := io.ReadAll(r); string(rest) != "more" {
		t.Errorf("%q is left on the input, want what follows the line", rest)
	}
}

func TestScriptOf(t *testing.T) {
	for _, c := range []struct {
		argv []string
		line string
		want string
	}{
		{[]string{"/var/spool/slurmd/job00005/slurm_script", "x"}, "", "/var/spool/slurmd/job00005/slurm_script"},
		{[]string{"./tool"}, "", "/work/tool"},
		{[]string{"hostname"}, "", ""},
		{[]string{"/bin/sh", "/home/ann/.lsbatch/17.3.shell"}, "", "/home/ann/.lsbatch/17.3.shell"},
		{[]string{"/bin/sh", "-c", "a/b"}, "", "/bin/sh"},
		{[]string{"/bin/bash"}, "/var/spool/pbs/mom_priv/jobs/7.SC", "/var/spool/pbs/mom_priv/jobs/7.SC"},
	} {
		if got := scriptOf(c.argv, c.line, "/work"); got != c.want {
			t.Errorf("%q, %q: %q, want %q", c.argv, c.line, got, c.want)
		}
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
		if got := command(wrapperOf(c.system), c.argv); !slices.Equal(got, c.out) {
			t.Errorf("%s %q: %q, want %q", c.system, c.argv, got, c.out)
		}
	}
}

func wrapperOf(s farm.BatchSystem) *batch.Wrapper {
	kind, _ := systems.Find(s)
	return kind.Wrapper
}

// TestHostsOwn: an image has its own system; a job's directory is bound wherever its batch system keeps it.
func TestHostsOwn(t *testing.T) {
	for dir, want := range map[string]bool{
		"/": true, "/usr/bin": true, "/etc": true, "/tmp": true, "/var/lib": true, "/run/user/1": true, "/opt": true,
		"/usrlocal": false,
		"/home/ann": false, "/var/lib/condor/execute/dir_17": false, "/tmp/run7": false, "/data": false,
		"/opt/site/run": false, "/root": false,
	} {
		if got := hostsOwn(dir); got != want {
			t.Errorf("%s: %v", dir, got)
		}
	}
}

func TestImagesOwn(t *testing.T) {
	for path, want := range map[string]bool{"/usr/bin/env": true, "/opt/site/bin/x": true, "/tmp/x": false,
		"/var/spool/slurmd/job5/slurm_script": false, "/home/x": false, "/tmp/d/x": false} {
		if got := imagesOwn(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

func TestJobPlaces(t *testing.T) {
	env := map[string]string{"_CONDOR_SCRATCH_DIR": "/var/lib/condor/execute/dir_1", "SGE_JOB_SPOOL_DIR": "/spool/7.1",
		"PBS_NODEFILE": "/var/spool/pbs/aux/7"}
	get := func(k string) string { return env[k] }
	for s, want := range map[farm.BatchSystem]string{farm.HTCondor: "/var/lib/condor/execute/dir_1",
		farm.GridEngine: "/spool/7.1", farm.PBS: "/var/spool/pbs/aux"} {
		got := jobPlaces(wrapperOf(s), get)
		if len(got) != 1 || got[0].dir != want || got[0].ReadOnly == (s == farm.HTCondor) {
			t.Errorf("%s: %+v", s, got)
		}
	}
	if got := jobPlaces(wrapperOf(farm.Slurm), get); got != nil {
		t.Errorf("slurm: %+v", got)
	}
	if got := jobPlaces(wrapperOf(farm.HTCondor), func(string) string { return "relative" }); got != nil {
		t.Errorf("a relative path: %+v", got)
	}
}

// TestEndings are those of jobs that ran: as on the host.
func TestEndings(t *testing.T) {
	exit := func(code, signal int) outcome {
		return outcome{status: code, exit: &api.Exit{Code: code, Signal: signal}}
	}
	for name, c := range map[string]struct {
		system farm.BatchSystem
		o      outcome
		status int
		signal syscall.Signal
		says   farm.Code
	}{
		"a status":            {farm.Slurm, exit(3, 0), 3, 0, ""},
		"a signal":            {farm.Slurm, exit(139, 11), 139, syscall.SIGSEGV, ""},
		"128+n is a status":   {farm.Slurm, exit(139, 0), 139, 0, ""},
		"199 of its own":      {farm.Slurm, exit(199, 0), 198, 0, CodeStatusTaken},
		"199 means nothing":   {farm.GridEngine, exit(199, 0), 199, 0, ""},
		"197 of its own":      {farm.HTCondor, exit(197, 0), 198, 0, CodeStatusTaken},
		"197 means nothing":   {farm.Slurm, exit(197, 0), 197, 0, ""},
		"99 asks to be again": {farm.GridEngine, exit(99, 0), 99, 0, ""},
		"given up by TERM": {farm.Slurm, outcome{status: 143, err: signalled{syscall.SIGTERM}}, 143,
			syscall.SIGTERM, ""},
		"the VM was lost": {farm.Slurm, outcome{status: 198, err: errors.New("x")}, 198, 0, ""},
	} {
		b := &batchJob{wrapper: wrapperOf(c.system), requeues: 3}
		e := b.end(c.o, func(string) string { return "" }, os.ReadFile)
		if e.status != c.status || e.signal != c.signal || codeOf(e.say) != string(c.says) {
			t.Errorf("%s: %+v", name, e)
		}
	}
	for _, s := range systems.WithJobs() {
		if wrapperOf(s).Requeue == 0 {
			t.Errorf("nobody knows how %s queues a job again", s)
		}
	}
}

// TestDie has this test's own program die of each signal, by which its parent can tell it from an exit status.
func TestDie(t *testing.T) {
	if s := os.Getenv("GRANGE_TEST_DIE"); s != "" {
		n, _ := strconv.Atoi(s)
		os.Exit(die(syscall.Signal(n)))
	}
	for _, s := range []syscall.Signal{1, 2, 3, 6, 8, 9, 10, 11, 13, 14, 15, 24, 25, 31, 34, 64} {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestDie$")
		cmd.Env = append(os.Environ(), "GRANGE_TEST_DIE="+strconv.Itoa(int(s)))
		cmd.Dir = t.TempDir()
		out, _ := cmd.CombinedOutput()
		w := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !w.Signaled() || w.Signal() != s || w.CoreDump() || len(out) > 0 {
			t.Errorf("signal %d: %v, %s", s, cmd.ProcessState, out)
		}
	}
}
