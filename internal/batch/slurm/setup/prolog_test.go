package setup

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/program"
)

// prologHost is a host whose slurmd is this process, by the name that a test gives it, and whose prolog has noted that
// all is well.
func prologHost(t *testing.T) (Install, string) {
	if os.Getuid() != 0 {
		t.Skip("the note is root's")
	}
	dir := t.TempDir()
	i := Install{ConfDir: filepath.Join(dir, "etc-it's"), PluginDir: filepath.Join(dir, "lib"),
		Wrapper: filepath.Join(dir, "grange"), Checked: filepath.Join(dir, "checked"), MinUID: 1000}
	write(t, dir, map[string]string{
		"etc-it's/slurm.conf": "ClusterName=a\n", "etc-it's/plugstack.conf": "# site\n" + i.include() + "\n",
		"etc-it's/plugstack.conf.d/grange.conf": "required " + i.plugin() + "\n", "lib/" + PluginName: "",
		"checked/slurmd-" + strconv.Itoa(os.Getpid()): "",
	})
	note := filepath.Join(i.Checked, "slurmd-"+strconv.Itoa(os.Getpid()))
	soon := time.Now().Add(time.Second)
	if err := errors.Join(os.Chtimes(note, soon, soon), os.Chmod(i.Checked, 0o755)); err != nil {
		t.Fatal(err)
	}
	return i, note
}

// faults are what makes Slurm pass over the plug-in, or a job's prolog doubt it.
var faults = map[string]func(i Install, note string) error{
	"no note": func(_ Install, note string) error { return os.Remove(note) },
	"a symlink as note": func(i Install, note string) error {
		return errors.Join(os.Rename(note, note+"x"), os.Symlink(note+"x", note))
	},
	"somebody's note": func(_ Install, note string) error { return os.Chown(note, 65534, 0) },
	"no plug-in":      func(i Install, _ string) error { return os.Remove(i.plugin()) },
	"no line": func(i Install, _ string) error {
		return os.Remove(filepath.Join(i.ConfDir, "plugstack.conf.d/grange.conf"))
	},
	"no include": func(i Install, _ string) error {
		return os.WriteFile(filepath.Join(i.ConfDir, "plugstack.conf"), nil, 0o644)
	},
	"no plugstack.conf": func(i Install,
		_ string) error {
		return os.Remove(filepath.Join(i.ConfDir, "plugstack.conf"))
	},
	"another one's": func(i Install, _ string) error {
		return os.WriteFile(filepath.Join(i.ConfDir, "slurm.conf"), []byte("PlugStackConfig=/nowhere\n"), 0o644)
	},
	"an old line, with an old time": func(i Install, _ string) error {
		return inPlace(filepath.Join(i.ConfDir, "plugstack.conf.d/grange.conf"), "# "+"required "+i.plugin()+"\n")
	},
	"in capitals": func(i Install, _ string) error {
		return inPlace(filepath.Join(i.ConfDir, "plugstack.conf.d/grange.conf"), "Required "+i.plugin()+"\n")
	},
	"from Windows": func(i Install, _ string) error {
		return inPlace(filepath.Join(i.ConfDir, "plugstack.conf"), i.include()+"\r\n")
	},
	"a hidden file": func(i Install, _ string) error {
		return os.Rename(filepath.Join(i.ConfDir, "plugstack.conf.d/grange.conf"),
			filepath.Join(i.ConfDir, "plugstack.conf.d/.grange.conf"))
	},
	"no slurm.conf": func(i Install, _ string) error { return os.Remove(filepath.Join(i.ConfDir, "slurm.conf")) },
	"optional": func(i Install, _ string) error {
		return os.WriteFile(filepath.Join(i.ConfDir, "plugstack.conf.d/grange.conf"),
			[]byte("optional "+i.plugin()+"\n"), 0o644)
	},
	"no directory of its": func(i Install,
		_ string) error {
		return os.RemoveAll(filepath.Join(i.ConfDir, "plugstack.conf.d"))
	},
}

// inPlace changes a file as `cp -p` does, which gives it the time that it had.
func inPlace(path, text string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(path, []byte(text), 0o644), os.Chtimes(path, info.ModTime(), info.ModTime()))
}

// TestPrologShell: the script ends by itself where nothing has changed since slurmd loaded the plug-in, and asks grange
// everywhere else.
func TestPrologShell(t *testing.T) {
	asks := func(i Install, shell string) bool {
		script := filepath.Join(t.TempDir(), "prolog")
		if err := errors.Join(os.WriteFile(script, []byte(i.Prolog()), 0o755),
			os.WriteFile(i.Wrapper, []byte("#!/bin/sh\necho asked \"$@\"\n"), 0o755)); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(shell, script).CombinedOutput()
		if err != nil || len(out) > 0 &&
			string(
				out) != "asked slurm prolog --checked "+i.Checked+" --min-uid 1000 --conf "+i.ConfDir+"/slurm.conf\n" {
			t.Errorf("%s %v", out, err)
		}
		return len(out) > 0
	}
	age := func(i Install, note string) {
		old, since := time.Now().Add(-time.Hour), time.Now().Add(-30*time.Minute)
		for _, dir := range []string{i.ConfDir, i.PluginDir} {
			if err := filepath.WalkDir(dir,
				func(path string, _ os.DirEntry,
					err error) error {
					return errors.Join(err, os.Chtimes(path, old, old))
				}); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(note, since, since); err != nil {
			t.Fatal(err)
		}
	}
	for _, shell := range []string{"sh", "bash"} {
		i, note := prologHost(t)
		if age(i, note); asks(i, shell) {
			t.Errorf("%s: asks where nothing has changed", shell)
		}
		for name, fault := range faults {
			i, note := prologHost(t)
			age(i, note)
			if err := fault(i, note); err != nil {
				t.Fatal(err)
			}
			if !asks(i, shell) {
				t.Errorf("%s: %s: lets the job pass without a look", shell, name)
			}
		}
	}
}

func TestPrologCheck(t *testing.T) {
	slurmd, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	named := filepath.Join(t.TempDir(), "slurmd") // the kernel takes a program's name from its file
	text, err := os.ReadFile(slurmd)
	if err := errors.Join(err, os.WriteFile(named, text, 0o755)); err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command(named, "1000")
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { daemon.Process.Kill(); daemon.Wait() }()
	check := func(i Install, uid, conf string, environ ...string) (closed bool, err error) {
		p := Prolog{Checked: i.Checked, MinUID: i.MinUID, Conf: filepath.Join(i.ConfDir, "slurm.conf"),
			Slurmd: daemon.Process.Pid, Environ: environ, Getenv: func(key string) string {
				return map[string]string{"SLURM_JOB_ID": "7", "SLURM_JOB_UID": uid, "SLURMD_NODENAME": "n",
					"SLURM_CONF": conf}[key]
			},
			Run: func(_ context.Context, c program.Call) ([]byte, error) {
				closed = strings.Contains(strings.Join(c.Args, " "), "nodename=n state=drain reason=")
				return nil, nil
			}}
		err = p.Check(t.Context())
		return closed, err
	}
	noted := func(i Install) bool {
		info, err := os.Stat(filepath.Join(i.Checked, "slurmd-"+strconv.Itoa(daemon.Process.Pid)))
		if err == nil && time.Since(info.ModTime()) < ticks {
			t.Error("the note is younger than the look")
		}
		return err == nil
	}
	i, stale := prologHost(t)
	if err := os.Rename(stale, filepath.Join(i.Checked, "slurmd-2000000000")); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{"0", "1000"} {
		if closed, err := check(i, uid, ""); err != nil || closed || !noted(i) {
			t.Errorf("user %s where all is well: %v, closed %v, noted %v", uid, err, closed, noted(i))
		}
	}
	if left, _ := os.ReadDir(i.Checked); len(left) != 1 {
		t.Errorf("%v: the note of a slurmd that has ended stays", left)
	}
	for name, fault := range faults {
		if strings.Contains(name, "note") {
			continue // nothing of Slurm's
		}
		i, note := prologHost(t)
		if err := fault(i, note); err != nil {
			t.Fatal(err)
		}
		if closed, err := check(i, "1000", ""); err == nil || !closed || noted(i) {
			t.Errorf("%s: %v, closed %v, noted %v", name, err, closed, noted(i))
		}
		if _, err := check(i, "999", ""); err != nil {
			t.Errorf("%s: a user without a default is refused: %v", name, err)
		}
		if _, err := check(i, "999", "", "SPANK__SLURM_SPANK_OPTION_grange_vm=el9"); err == nil {
			t.Errorf("%s: a job that asks for a VM passes", name)
		}
	}
	// slurmd reads another slurm.conf than the script watches.
	other := filepath.Join(t.TempDir(), "slurm.conf")
	i, _ = prologHost(t)
	if err := os.WriteFile(other, []byte("PlugStackConfig="+filepath.Join(i.ConfDir, "plugstack.conf")+"\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := check(i, "1000", other); err != nil || noted(i) {
		t.Errorf("another slurm.conf: %v, noted %v", err, noted(i))
	}
	if err := os.Symlink(i.Checked, i.Checked+".link"); err != nil {
		t.Fatal(err)
	}
	i.Checked += ".link"
	if _, err := check(i, "1000", ""); err != nil || noted(i) {
		t.Errorf("a directory behind a symlink: %v, noted %v", err, noted(i))
	}
	if _, err := check(i, "nobody", ""); err == nil {
		t.Error("not started by slurmd, and passes")
	}
}
