package tune

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/grange-project/grange/internal/hosttree"
	"github.com/grange-project/grange/internal/tuning/apply"
)

// TestNobodyListens: ctrl-C at `grange tune apply 2>&1 | tee log` ends tee, too, and a lost connection the terminal.
// Neither may end the program between two steps.
func TestNobodyListens(t *testing.T) {
	tree, err := hosttree.Open("../../internal/tuning/testdata/hosts/cern-2015-before.txtar")
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	dir := t.TempDir()
	if err := os.CopyFS(dir, tree.FS); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, c := range []struct {
		args []string
		want apply.Phase
	}{{[]string{"tune", "apply", "--root", dir, "--rule", "ept-off", "--yes"},
		apply.Applied}, {[]string{"tune", "undo", "--root", dir}, apply.Undone}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), program, c.args...)
		cmd.Stdout, cmd.Stderr = w, w
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		_, readErr := r.Read(make([]byte, 1)) // a plan is shown before anything begins
		r.Close()
		err = cmd.Wait()
		if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); readErr != nil || ok && s.Signaled() {
			t.Errorf("%v: %v, read: %v", c.args, err, readErr)
		}
		runs, err := apply.History(root)
		if err != nil || len(runs) != 1 || runs[0].Phase != c.want {
			t.Fatalf("%v: %v, %d runs, want one that is %s", c.args, err, len(runs), c.want)
		}
	}
}

// TestPlanToAReaderThatGoes leaves nothing in the temporary directory.
func TestPlanToAReaderThatGoes(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	temporary := t.TempDir()
	cmd := exec.CommandContext(t.Context(), program, "tune", "plan", "--from",
		"../../internal/tuning/testdata/hosts/cern-2015-before.txtar")
	cmd.Stdout, cmd.Env = w, append(os.Environ(), "TMPDIR="+temporary)
	err = cmd.Run()
	w.Close()
	if err == nil {
		t.Error("a plan that nobody read ended well")
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestNobodySeesThePlan: what was not shown is not applied, whatever was agreed to before.
func TestNobodySeesThePlan(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	tree, err := hosttree.Open("../../internal/tuning/testdata/hosts/cern-2015-before.txtar")
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	dir := t.TempDir()
	if err := os.CopyFS(dir, tree.FS); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"apply", "--yes"}, {"plan"}, {"history"}, {"drift"}} {
		cmd := exec.CommandContext(t.Context(), program,
			append([]string{"tune", args[0], "--root", dir}, args[1:]...)...)
		cmd.Stdout = full
		cmd.Run()
		if status := cmd.ProcessState.ExitCode(); status != 1 {
			t.Errorf("%v: status %d, want 1", args, status)
		}
	}
	if _, err := os.Stat(dir + "/var/lib/grange"); err == nil {
		t.Error("something was applied")
	}
}
