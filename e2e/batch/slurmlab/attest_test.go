package slurmlab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestAttestDirectory: the plug-in's word counts only where nobody but root could have left it.
func TestAttestDirectory(t *testing.T) {
	top := t.TempDir()
	plugin, err := filepath.Abs("../../../slurm/spank/grange_spank.c")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(top, "prolog")
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
		for range 2 { // the second start of the same job finds the first one's file
			out, err := exec.Command(program, "attest="+dir).CombinedOutput()
			if (err == nil) != c.good {
				t.Errorf("%s: %v: %s", name, err, out)
			}
		}
		if _, err := os.Stat(filepath.Join(at, "7")); (err == nil) != c.good {
			t.Errorf("%s: the file: %v", name, err)
		}
	}
}
