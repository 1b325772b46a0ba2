package tune

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/grange-project/grange/internal/hosttree"
	"github.com/grange-project/grange/internal/tuning/apply"
)

// TestNobodyListens: ctrl-C at `grange tune apply 2>&1 | tee log` ends tee, too, and a lost connection the terminal. Neither may end
// the program between two steps.
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
	}{{[]string{"tune", "apply", "--root", dir, "--rule", "ept-off", "--yes"}, apply.Applied}, {[]string{"tune", "undo", "--root", dir}, apply.Undone}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		cmd := exec.Command(program, c.args...)
		cmd.Stdout, cmd.Stderr = w, w
		err = cmd.Run()
		w.Close()
		if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
			t.Errorf("%v: %v", c.args, err)
		}
		runs, err := apply.History(root)
		if err != nil || len(runs) != 1 || runs[0].Phase != c.want {
			t.Fatalf("%v: %v, %d runs, want one that is %s", c.args, err, len(runs), c.want)
		}
	}
}
