package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/runner/runnertest"
)

// TestBatchSocketIsTheSites: a job's user cannot name an agent of their own, in whatever way a batch system starts the
// wrapper.
func TestBatchSocketIsTheSites(t *testing.T) {
	f := runnertest.Start(t, api.Grant{}, nil)
	t.Setenv("GRANGE_SOCKET", f.Socket)
	t.Setenv("GRANGE_VM_IMAGE", "")
	t.Setenv("GRANGE_VM_SHAPE", "")
	t.Chdir("/")
	for _, args := range [][]string{
		{"exec", "--batch", "slurm", "--wait-timeout", "10ms", "--", "/bin/true"},
		append([]string{"exec", "--wait-timeout", "10ms"},
			Called("grange-exec-slurm", []string{"/bin/true"}, os.Getenv)[1:]...),
	} {
		var errs bytes.Buffer
		root := grange(&app.App{Out: io.Discard, Err: &errs})
		root.SetArgs(args)
		if err := root.Execute(); f.Request != nil || f.Asked || err == nil {
			t.Errorf("%q: the user's agent was asked: %v: %s", args, err, errs.String())
		}
	}
}

// TestHook runs the wrapper as a batch system does that takes a path only. The socket in the file goes before the
// user's variable.
func TestHook(t *testing.T) {
	f := runnertest.Start(t, api.Grant{Requeues: 3}, nil)
	t.Setenv("GRANGE_SOCKET", "/nonexistent")
	t.Chdir("/")
	path := filepath.Join(t.TempDir(), "starter")
	if err := os.WriteFile(path, []byte(
		"#!/usr/bin/grange hook\n# of all queues\nexec --batch gridengine\n  --socket "+f.Socket+" --\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	run := func(args ...string) error {
		root := grange(&app.App{Out: io.Discard, Err: &errs})
		root.SetArgs(append([]string{"hook"}, args...))
		return root.Execute()
	}
	err := run(path, "/usr/bin/env", "--socket", "x y")
	if exit, ok := err.(app.ExitError); !ok || exit.Status != 99 {
		t.Errorf("%v: %s", err, errs.String())
	}
	if f.Request == nil || !slices.Equal(f.Request.Argv, []string{"/usr/bin/env", "--socket", "x y"}) ||
		f.Request.Batch != "gridengine" {
		t.Errorf("%+v", f.Request)
	}
	for _, text := range []string{"", "#!/x hook\n", "hook me\n"} {
		os.WriteFile(path, []byte(text), 0o755)
		if err := run(path); err == nil || !strings.Contains(err.Error(), "holds no command") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := run(path + ".none"); err == nil {
		t.Error("a file that is not there")
	}
	if err := run(); err == nil {
		t.Error("no file")
	}
}
