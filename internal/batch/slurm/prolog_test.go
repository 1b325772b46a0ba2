package slurm

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/batch/program"
)

// prologHost is a host whose slurmd is this process, and has loaded the plug-in.
func prologHost(t *testing.T) (Install, string) {
	if os.Getuid() != 0 {
		t.Skip("the plug-in's word is root's")
	}
	dir := t.TempDir()
	i := Install{ConfDir: filepath.Join(dir, "etc it's"), PluginDir: filepath.Join(dir, "lib"), Wrapper: filepath.Join(dir, "grange"), Attest: filepath.Join(dir, "attest"), MinUID: 1000}
	write(t, dir, map[string]string{
		"etc it's/slurm.conf": "ClusterName=a\n", "etc it's/plugstack.conf": "include plugstack.conf.d/*.conf\n",
		"etc it's/plugstack.conf.d/grange.conf": "required " + i.plugin() + "\n", "lib/" + PluginName: "", "attest/slurmd-" + strconv.Itoa(os.Getpid()): "",
	})
	word := filepath.Join(i.Attest, "slurmd-"+strconv.Itoa(os.Getpid()))
	soon := time.Now().Add(time.Second)
	if err := errors.Join(os.Chtimes(word, soon, soon), os.Chmod(i.Attest, 0o755)); err != nil {
		t.Fatal(err)
	}
	return i, word
}

// faults are what makes Slurm pass over the plug-in, or a job's prolog doubt it.
var faults = map[string]func(i Install, word string) error{
	"no word": func(_ Install, word string) error { return os.Remove(word) },
	"a symlink as word": func(i Install, word string) error {
		return errors.Join(os.Rename(word, word+"x"), os.Symlink(word+"x", word))
	},
	"somebody's word": func(_ Install, word string) error { return os.Chown(word, 65534, 0) },
	"no plug-in":      func(i Install, _ string) error { return os.Remove(i.plugin()) },
	"no line": func(i Install, _ string) error {
		return os.Remove(filepath.Join(i.ConfDir, "plugstack.conf.d/grange.conf"))
	},
	"no include": func(i Install, _ string) error {
		return os.WriteFile(filepath.Join(i.ConfDir, "plugstack.conf"), nil, 0o644)
	},
	"no plugstack.conf": func(i Install, _ string) error { return os.Remove(filepath.Join(i.ConfDir, "plugstack.conf")) },
	"another one's": func(i Install, _ string) error {
		return os.WriteFile(filepath.Join(i.ConfDir, "slurm.conf"), []byte("PlugStackConfig=/nowhere\n"), 0o644)
	},
	"optional": func(i Install, _ string) error {
		return os.WriteFile(filepath.Join(i.ConfDir, "plugstack.conf.d/grange.conf"), []byte("optional "+i.plugin()+"\n"), 0o644)
	},
	"no directory of its": func(i Install, _ string) error { return os.RemoveAll(filepath.Join(i.ConfDir, "plugstack.conf.d")) },
}

// TestPrologShell: the script ends by itself where nothing has changed since slurmd loaded the plug-in, and asks grange everywhere else.
func TestPrologShell(t *testing.T) {
	asks := func(i Install, shell string) bool {
		script := filepath.Join(t.TempDir(), "prolog")
		if err := errors.Join(os.WriteFile(script, []byte(i.Prolog()), 0o755), os.WriteFile(i.Wrapper, []byte("#!/bin/sh\necho asked \"$@\"\n"), 0o755)); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(shell, script).CombinedOutput()
		if err != nil || len(out) > 0 && string(out) != "asked slurm prolog --attest "+i.Attest+" --min-uid 1000 --conf "+i.ConfDir+"/slurm.conf\n" {
			t.Errorf("%s %v", out, err)
		}
		return len(out) > 0
	}
	age := func(i Install, word string) {
		old, since := time.Now().Add(-time.Hour), time.Now().Add(-30*time.Minute)
		for _, dir := range []string{i.ConfDir, i.PluginDir} {
			if err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error { return errors.Join(err, os.Chtimes(path, old, old)) }); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(word, since, since); err != nil {
			t.Fatal(err)
		}
	}
	for _, shell := range []string{"sh", "bash"} {
		i, word := prologHost(t)
		if age(i, word); asks(i, shell) {
			t.Errorf("%s: asks where nothing has changed", shell)
		}
		for name, fault := range faults {
			i, word := prologHost(t)
			age(i, word)
			if err := fault(i, word); err != nil {
				t.Fatal(err)
			}
			if !asks(i, shell) {
				t.Errorf("%s: %s: lets the job pass without a look", shell, name)
			}
		}
	}
}

func TestPrologCheck(t *testing.T) {
	check := func(i Install, uid string, environ ...string) (closed bool, err error) {
		p := Prolog{Attest: i.Attest, MinUID: i.MinUID, Conf: filepath.Join(i.ConfDir, "slurm.conf"), PID: os.Getpid(), Environ: environ,
			Getenv: func(key string) string {
				return map[string]string{"SLURM_JOB_ID": "7", "SLURM_JOB_UID": uid, "SLURMD_NODENAME": "n"}[key]
			},
			Run: func(_ context.Context, c program.Call) ([]byte, error) {
				closed = strings.Contains(strings.Join(c.Args, " "), "nodename=n state=drain reason=")
				return nil, nil
			}}
		err = p.Check(t.Context())
		return closed, err
	}
	i, word := prologHost(t)
	for _, uid := range []string{"0", "1000"} {
		if closed, err := check(i, uid); err != nil || closed {
			t.Errorf("user %s: refused where all is well: %v", uid, err)
		}
	}
	if info, err := os.Stat(word); err != nil || info.ModTime().After(time.Now()) {
		t.Errorf("the word is not as old as the look: %v %v", info.ModTime(), err)
	}
	for name, fault := range faults {
		i, word := prologHost(t)
		if err := fault(i, word); err != nil {
			t.Fatal(err)
		}
		if closed, err := check(i, "1000"); err == nil || !closed {
			t.Errorf("%s: %v, closed %v", name, err, closed)
		}
		if _, err := check(i, "999"); err != nil {
			t.Errorf("%s: a user without a default is refused: %v", name, err)
		}
		if _, err := check(i, "999", "SPANK__SLURM_SPANK_OPTION_grange_vm=el9"); err == nil {
			t.Errorf("%s: a job that asks for a VM passes", name)
		}
	}
	if _, err := check(i, "nobody"); err == nil {
		t.Error("not started by slurmd, and passes")
	}
}

func TestParent(t *testing.T) {
	if got, err := parent(os.Getpid()); err != nil || got != os.Getppid() {
		t.Error(got, err)
	}
	// A program's name may hold what the line is made of.
	odd := filepath.Join(t.TempDir(), ") R 1 (")
	if err := os.WriteFile(odd, []byte("#!/bin/sh\nread x\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(odd)
	in, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := parent(c.Process.Pid); err != nil || got != os.Getpid() {
		t.Error(got, err)
	}
	io.WriteString(in, "\n")
	c.Wait()
}
