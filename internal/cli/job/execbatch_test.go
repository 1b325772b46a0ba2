package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/runner/runnertest"
)

// runExec runs `grange exec` and returns the status it would end with.
func runExec(t *testing.T, socket string, flags execFlags, argv ...string) (status int, errs string) {
	t.Helper()
	var b bytes.Buffer
	a := &app.App{Socket: socket, Out: io.Discard, Err: &b}
	var exit app.ExitError
	if err := (execCommands{a}).exec(t.Context(), &flags, argv); !errors.As(err, &exit) {
		t.Fatalf("%v", err)
	}
	return exit.Status, b.String()
}

// TestBatchWithoutAgent must not start anything, and has the job tried again.
func TestBatchWithoutAgent(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	if status, errs := runExec(t, none, execFlags{batch: "slurm", wait: true, waitTimeout: 50 * time.Millisecond},
		"true"); status != 199 || !strings.Contains(errs, "[no-agent]") {
		t.Errorf("status %d, %q", status, errs)
	}
	if status, errs := runExec(t, none, execFlags{batch: "slurm", memory: "lots", wait: true}, "true"); status != 197 {
		t.Errorf("a size that is none: status %d, want 197: %s", status, errs)
	}
}

// TestBatchTellsBoth prints why a VM was not started, and that it will not be tried again.
func TestBatchTellsBoth(t *testing.T) {
	t.Setenv("SLURM_RESTART_COUNT", "")
	f := runnertest.Start(t, api.Grant{}, nil)
	status, errs := runExec(t, f.Socket, execFlags{batch: "slurm", wait: true}, "true")
	if first, more, _ := strings.Cut(errs, "[guest-silent]"); status != 197 || first == "" ||
		!strings.Contains(more, "[vm-never-starts]") {
		t.Errorf("status %d, %q", status, errs)
	}
	if status, errs := runExec(t, f.Socket, execFlags{batch: "slurm", wait: true, prologs: []string{"/nosuch"}},
		"true"); status != 197 || !strings.Contains(errs, "prolog") {
		t.Errorf("a prolog that is not there: status %d, %q", status, errs)
	}
}

// TestExecAsks: what flags say reaches the agent.
func TestExecAsks(t *testing.T) {
	f := runnertest.Start(t, api.Grant{Requeues: 3}, nil)
	dir := t.TempDir()
	prolog := filepath.Join(dir, "prolog")
	if err := os.WriteFile(prolog, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	runExec(t, f.Socket, execFlags{batch: "slurm", noWait: true, image: "el9", cpus: 2, memory: "1G", env: []string{"A=b"},
		binds: []string{dir + ":/mine:ro"}, workdir: dir, prologs: []string{prolog}}, "true", "x")
	if r := f.Request; r == nil || r.ID == "" || !r.NoWait || r.Image != "el9" || r.CPUs != 2 || r.Memory != 1<<30 ||
		!slices.Contains(r.Env, "A=b") || r.Binds[0].Target != "/mine" || !r.Binds[0].ReadOnly || r.Binds[0].FD == 0 ||
		r.Dir != dir || len(r.Prologs) != 1 || !slices.Equal(r.Argv, []string{"true", "x"}) || r.Batch != "slurm" {
		t.Errorf("%+v", r)
	}
	f.Request = nil
	if status, _ := runExec(t, f.Socket, execFlags{workdir: "/tmp"}, "true"); status != batch.ExitNotStarted ||
		f.Request == nil || f.Request.Batch != "" || f.Request.Dir != "/tmp" {
		t.Errorf("status %d, %+v", status, f.Request)
	}
}

// TestEmulatedIsToldOnceADay has jobs of one user learn that their VMs are emulated. The first that may speak tells of
// it. A job with --quiet says nothing, and leaves the word to the next.
func TestEmulatedIsToldOnceADay(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	f := runnertest.Start(t, api.Grant{}, func(w http.ResponseWriter) {
		event := api.JobEvent{Event: api.EventVM, VM: &api.VM{Applied: api.Applied{Emulated: "no /dev/kvm"}}}
		for range 2 {
			json.NewEncoder(w).Encode(event)
		}
		json.NewEncoder(w).Encode(api.JobEvent{Event: api.EventFailed, Problem: &api.Problem{Detail: "test ends"}})
	})
	const note = "the VM is emulated, many times slower than under KVM (told once a day): no /dev/kvm"
	for i, c := range []struct {
		flag string
		told int
	}{{"--quiet", 0}, {"--no-input", 1}, {"--no-input", 0}, {"-q", 0}} {
		var said bytes.Buffer
		command := execCommands{&app.App{Socket: f.Socket, Out: io.Discard, Err: &said}}.execCommand()
		command.SilenceUsage, command.SilenceErrors = true, true
		command.SetArgs([]string{c.flag, "--", "true"})
		if err := command.ExecuteContext(t.Context()); err == nil {
			t.Errorf("call %d ended well", i)
		}
		got, all := strings.Count(said.String(), note), strings.Count(said.String(), "emulated")
		if got != c.told || all != c.told {
			t.Errorf("call %d with %s told it %d times: %q", i, c.flag, got, &said)
		}
	}
}
