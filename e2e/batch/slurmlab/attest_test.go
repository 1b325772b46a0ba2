package slurmlab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAttestDirectory: the plug-in's word counts only where nobody but root could have left it.
func TestAttestDirectory(t *testing.T) {
	top := t.TempDir()
	plugin, err := filepath.Abs("../../../slurm/spank/grange_spank.c")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(top, "slurmd")
	if out, err := exec.Command("/usr/bin/gcc", "-std=gnu11", fmt.Sprintf("-DPLUGIN=%q", plugin), "-o", program, "testdata/attest.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, c := range map[string]struct {
		mode  os.FileMode
		owner int
		link  bool
		none  bool
		good  bool
	}{
		"root's":           {mode: 0o755, good: true},
		"not there yet":    {none: true, good: true},
		"a group's":        {mode: 0o775},
		"everybody's":      {mode: 0o777 | os.ModeSticky},
		"somebody's":       {mode: 0o755, owner: nobody},
		"behind a symlink": {mode: 0o755, link: true},
	} {
		dir := filepath.Join(t.TempDir(), "attest")
		at := dir
		if c.link {
			at = dir + ".real"
			if err := os.Symlink(at, dir); err != nil {
				t.Fatal(err)
			}
		}
		if !c.none {
			for _, err := range []error{os.Mkdir(at, 0o755), os.Chmod(at, c.mode), os.Chown(at, c.owner, 0)} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		out, err := exec.Command(program, "attest="+dir).Output()
		if err != nil {
			t.Fatalf("%s: slurmd would not start: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(at, strings.TrimSpace(string(out)))); (err == nil) != c.good {
			t.Errorf("%s: the word: %v", name, err)
		}
	}
}
