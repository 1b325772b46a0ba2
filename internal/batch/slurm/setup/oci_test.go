package setup

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/slurm"
	"github.com/grange-project/grange/internal/program"
)

// TestOCIProlog runs the script itself: what lets a job pass, and what does not.
func TestOCIProlog(t *testing.T) {
	for name, c := range map[string]struct {
		change func(dir string) error
		passes bool
	}{
		"all there":   {func(string) error { return nil }, true},
		"no oci.conf": {func(dir string) error { return os.Remove(dir + "/oci.conf") }, false},
		"another's": {func(dir string) error {
			return os.WriteFile(dir+"/oci.conf", []byte("RunTimeRun=\"crun run %b\"\n"), 0o644)
		}, false},
		"commented out": {func(dir string) error {
			return os.WriteFile(dir+"/oci.conf", []byte("#RunTimeRun=\"exec "+dir+"/grange \"\n"), 0o644)
		}, false},
		"a link elsewhere": {func(dir string) error {
			return errors.Join(os.Remove(dir+"/oci.conf"), os.Symlink("/proc/1/status", dir+"/oci.conf"))
		}, false},
		"no wrapper":       {func(dir string) error { return os.Remove(dir + "/grange") }, false},
		"no place to tell": {func(dir string) error { return os.WriteFile(dir+"/words", nil, 0o644) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			i := Install{ConfDir: dir, Wrapper: dir + "/grange", Socket: "/s", Words: dir + "/words"}
			write(t, dir, map[string]string{"grange": "#!/bin/sh\necho \"$*\" >&2\nexit 7\n", "oci.conf": i.OCIConf(),
				"prolog": i.OCIProlog(), "epilog": i.OCIEpilog()})
			if err := c.change(dir); err != nil {
				t.Fatal(err)
			}
			env := []string{"SLURM_CONF=" + dir + "/slurm.conf", "SLURM_JOB_ID=12", "SLURM_JOB_RESTART_COUNT=1",
				"SLURM_JOB_WORK_DIR=/home/a b\\n"}
			run := func(hook string) error {
				cmd := exec.Command("/bin/sh", dir+"/"+hook)
				cmd.Env = env
				return cmd.Run()
			}
			if err := run("prolog"); (err == nil) != c.passes {
				t.Fatal(err)
			}
			env = env[1:] // older ones do not say where slurm.conf is
			if err := run("prolog"); (err == nil) != c.passes {
				t.Fatal(err)
			}
			if !c.passes {
				return
			}
			if w, err := slurm.ReadWord(i.Words, "12"); err != nil || w != (slurm.Word{Restarts: 1, Dir: "/home/a b\\n"}) {
				t.Errorf("%+v %v", w, err)
			}
			if err := run("epilog"); err != nil {
				t.Error(err)
			}
			if w, err := slurm.ReadWord(i.Words, "12"); err == nil {
				t.Errorf("%+v is left", w)
			}
		})
	}
}

// TestOCIInstall: what install --oci writes passes check, also with a Prolog of the site's; and uninstall takes all of
// it back.
func TestOCIInstall(t *testing.T) {
	dir := t.TempDir()
	const conf = "ClusterName=a\n"
	write(t, dir, map[string]string{"etc/slurm/slurm.conf": conf})
	i := Install{Root: dir, ConfDir: "/etc/slurm", PluginDir: "/usr/lib/grange", Wrapper: "/usr/bin/grange",
		Socket: "/s", Words: "/a", OCI: true, Write: true}
	p, err := i.Plan()
	if err != nil || len(p.Files) != 3 || len(p.Edits) != 1 {
		t.Fatalf("%+v %v", p, err)
	}
	for _, line := range []string{"+Prolog=/etc/slurm/prolog.d/*", "+Epilog=/etc/slurm/epilog.d/*", "+RequeueExit=199",
		"+PrologFlags=Contain #"} {
		if !strings.Contains(p.Edits[0].Diff(), line) {
			t.Errorf("no %s in %s", line, p.Edits[0].Diff())
		}
	}
	if err := i.Apply(context.Background(), noSlurmd, p); err != nil {
		t.Fatal(err)
	}
	again, err := i.Plan()
	if err != nil || len(again.Edits) != 0 ||
		slices.ContainsFunc(again.Files, func(f File) bool { return f.Has != "same" }) {
		t.Errorf("%+v %v", again, err)
	}
	r, err := i.Removal()
	if err != nil || len(r.Hollow) != 2 || len(r.Remove) != 0 {
		t.Fatalf("%+v %v", r, err)
	}
	if err := i.Uninstall(r); err != nil {
		t.Fatal(err)
	}
	if r, err = i.Removal(); err != nil || len(r.Hollow) != 0 || len(r.Remove) != 3 || len(r.Edits) != 0 {
		t.Fatalf("%+v %v", r, err)
	}
	if err := i.Uninstall(r); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(dir + "/etc/slurm/slurm.conf"); err != nil || string(text) != conf {
		t.Errorf("%q %v", text, err)
	}
	for _, left := range []string{"oci.conf", "prolog.d/50-grange", "epilog.d/50-grange"} {
		if _, err := os.Stat(dir + "/etc/slurm/" + left); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", left, err)
		}
	}
}

func TestOCIInstallRefuses(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"etc/slurm/oci.conf": "RunTimeRun=\"crun run %b\"\n"})
	good := Install{Root: dir, ConfDir: "/etc/slurm", Wrapper: "/usr/bin/grange", Socket: "/s", Words: "/a", OCI: true}
	for name, change := range map[string]func(*Install){
		"the site's own oci.conf": func(*Install) {},
		"a wrapper with blanks":   func(i *Install) { i.ConfDir, i.Wrapper = "/etc/other", "/opt/my grange" },
		"a pattern of Slurm's":    func(i *Install) { i.ConfDir, i.Socket = "/etc/other", "/run/%u/sock" },
		"a default image":         func(i *Install) { i.ConfDir, i.Default = "/etc/other", "el9" },
		"a submit host":           func(i *Install) { i.ConfDir, i.Submit = "/etc/other", true },
	} {
		i := good
		change(&i)
		if p, err := i.Plan(); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func TestCheckOCI(t *testing.T) {
	i := Install{Wrapper: "/usr/local/bin/grange", Socket: "/s", Words: "/a"}
	conf := i.OCIConf()
	base := map[string]string{
		"slurm.conf":         "Prolog=$D/prolog.d/*\nPrologFlags=Alloc\n",
		"oci.conf":           conf,
		"prolog.d/50-grange": i.OCIProlog(),
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  map[string]batch.Level
	}{
		"as installed": {nil, map[string]batch.Level{"oci": batch.Good, "oci-prolog": batch.Good,
			"oci-steps": batch.Advice, "plugstack": batch.Good, "plugin-file": batch.Good, "prolog": batch.Good}},
		"no prolog": {map[string]string{"prolog.d/50-grange": "#!/bin/sh\n"},
			map[string]batch.Level{"oci-prolog": batch.Broken}},
		"late prolog": {map[string]string{"slurm.conf": "Prolog=$D/prolog.d/*\n"},
			map[string]batch.Level{"oci-prolog": batch.Warning}},
		"another runtime": {map[string]string{"oci.conf": "RunTimeRun=\"crun\"\n"},
			map[string]batch.Level{"oci": batch.Broken}},
		"no exec": {map[string]string{"oci.conf": strings.Replace(conf, "\"exec ", "\"", 1)},
			map[string]batch.Level{"oci": batch.Broken}},
		"no query": {map[string]string{"oci.conf": strings.Replace(conf, "RunTimeQuery", "#", 1)},
			map[string]batch.Level{"oci": batch.Broken}},
		"a user's word": {map[string]string{"oci.conf": strings.Replace(conf, "state ", "state %b ", 1)},
			map[string]batch.Level{"oci": batch.Broken}},
		"environment": {map[string]string{"oci.conf": conf + "CreateEnvFile=true\n"},
			map[string]batch.Level{"oci": batch.Warning}},
		"no config.json": {map[string]string{"oci.conf": conf + "IgnoreFileConfigJson=true\n"},
			map[string]batch.Level{"oci": batch.Broken}},
		"steps of salloc": {map[string]string{"slurm.conf": base["slurm.conf"] +
			"LaunchParameters=use_interactive_step\n"}, map[string]batch.Level{"oci-steps": batch.Broken}},
		"lua for all": {map[string]string{"slurm.conf": base["slurm.conf"] + "JobSubmitPlugins=lua\n",
			"job_submit.lua": "job.container = x\n"}, map[string]batch.Level{"oci-steps": batch.Broken}},
		"lua for those of it": {map[string]string{"slurm.conf": base["slurm.conf"] + "JobSubmitPlugins=lua\n",
			"job_submit.lua": "if job.script == nil then return slurm.ERROR end job.container = x\n"},
			map[string]batch.Level{"oci-steps": batch.Advice}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, base)
			write(t, dir, c.files)
			got := levels(t, dir)
			for id, want := range c.want {
				if got[id] != want {
					t.Errorf("%s: %q, want %q", id, got[id], want)
				}
			}
		})
	}
	t.Run("no oci.conf", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, base)
		if err := os.Remove(dir + "/oci.conf"); err != nil {
			t.Fatal(err)
		}
		if got := levels(t, dir); got["oci"] != batch.Broken {
			t.Errorf("%v", got)
		}
	})
}

// TestOCIPrologCloses: whoever is sent here has been refused, and the host is closed with the reason.
func TestOCIPrologCloses(t *testing.T) {
	var call program.Call
	p := Prolog{Conf: "/e/oci.conf",
		Getenv: func(key string) string { return map[string]string{"SLURMD_NODENAME": "n1"}[key] },
		Run:    func(_ context.Context, c program.Call) ([]byte, error) { call = c; return nil, nil }}
	if err := p.CheckOCI(context.Background()); err == nil || !strings.Contains(err.Error(), "/e/oci.conf") ||
		!slices.Contains(call.Args, "state=drain") {
		t.Errorf("%v %v", err, call)
	}
}
