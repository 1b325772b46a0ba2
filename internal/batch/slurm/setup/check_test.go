package setup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/batchtest"
	"github.com/grange-project/grange/internal/program"
)

// noSlurmd is a host without slurmd.
func noSlurmd(context.Context, program.Call) ([]byte, error) {
	return []byte("slurm 24.11.5\n"), nil
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(path, []byte(strings.ReplaceAll(text, "$D", dir)), 0o755),
			os.Chmod(path, mode(name))); err != nil {
			t.Fatal(err)
		}
	}
}

// mode: a plug-in that everybody can write is one of the things to find.
func mode(name string) os.FileMode {
	if strings.HasSuffix(name, ".so") {
		return 0o777
	}
	return 0o755
}

func levels(t *testing.T, dir string) map[string]batch.Level {
	t.Helper()
	s, err := ReadSite(context.Background(), noSlurmd, filepath.Join(dir, "slurm.conf"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]batch.Level{}
	for id, f := range batchtest.Findings(t, Check(s)) {
		all[id] = f.Level
	}
	return all
}

// good is a configuration in which nothing about Slurm is to be said.
var good = map[string]string{
	"slurm.conf": `# all is well
include more.conf
ProctrackType=proctrack/cgroup
TASKPLUGIN = task/cgroup,task/affinity # in any case
SelectTypeParameters=CR_Core_\
Memory
JobAcctGatherType=jobacct_gather/cgroup
RequeueExit=1,199
PrologFlags=Contain
AccountingStorageType=accounting_storage/slurmdbd
NodeName=a CPUs=2
`,
	"more.conf":      "Prolog=$D/prolog.d/*\nTaskProlog=/site/prolog\n",
	"cgroup.conf":    "ConstrainRAMSpace=yes\nConstrainCores=YES\n",
	"plugstack.conf": "include plugstack.conf.d/*.conf\n",
	"plugstack.conf.d/grange.conf": "required $D/grange_spank.so wrapper=$D/grange default=micro " +
		"task_prolog=/site/prolog\n",
	"prolog.d/50-grange": "#!/bin/sh\nexec /usr/local/bin/grange slurm prolog\n",
}

func TestCheckGood(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, good)
	elsewhere := []string{"plugin-file", "wrapper", "user-env", "login", "libvirt-cgroups", "agent-conf"}
	for id, level := range levels(t, dir) {
		// What they look at is not in this directory: those checks have tests of their own.
		if level != batch.Good && !slices.Contains(elsewhere, id) {
			t.Errorf("%s: %s", id, level)
		}
	}
}

func TestCheckFinds(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		id    string
		want  batch.Level
	}{
		"no plugstack": {map[string]string{"plugstack.conf": ""}, "plugstack", batch.Broken},
		"optional on a host": {map[string]string{"plugstack.conf.d/grange.conf": "optional $D/grange_spank.so\n"},
			"plugstack", batch.Broken},
		"no default": {map[string]string{"plugstack.conf.d/grange.conf": "required $D/grange_spank.so\n"},
			"default-image", batch.Advice},
		"no plug-in":          {nil, "plugin-file", batch.Broken},
		"writable plug-in":    {map[string]string{"grange_spank.so": "x"}, "plugin-file", batch.Broken},
		"no wrapper":          {nil, "wrapper", batch.Broken},
		"a script as wrapper": {map[string]string{"grange": "#!/bin/sh\n"}, "wrapper", batch.Broken},
		"no prolog":           {map[string]string{"prolog.d/50-grange": "#!/bin/sh\n"}, "prolog", batch.Broken},
		"linuxproc": {map[string]string{"slurm.conf": good["slurm.conf"] +
			"ProctrackType=proctrack/linuxproc\n"}, "proctrack", batch.Warning},
		"no task plug-in": {map[string]string{"slurm.conf": "RequeueExit=199\n"}, "task-plugin", batch.Warning},
		"no requeue":      {map[string]string{"slurm.conf": "RequeueExit=19,1990\n"}, "requeue-exit", batch.Warning},
		"memory not counted": {map[string]string{"slurm.conf": "SelectTypeParameters=CR_Core\n"},
			"memory-counted", batch.Warning},
		"memory not limited": {map[string]string{"cgroup.conf": "ConstrainRAMSpace=no\n"},
			"constrain-memory", batch.Warning},
		"wrapper's figures": {map[string]string{"slurm.conf": "JobAcctGatherType=jobacct_gather/linux\n"},
			"accounting", batch.Warning},
		"short KillWait": {map[string]string{"slurm.conf": "KillWait=2\n"}, "kill-wait", batch.Warning},
		"short unkillable": {map[string]string{"slurm.conf": "UnkillableStepTimeout=10\n"},
			"unkillable", batch.Warning},
		"interactive": {map[string]string{"slurm.conf": "LaunchParameters=a,use_interactive_step\n"},
			"interactive-step", batch.Advice},
		"task prolog": {map[string]string{"plugstack.conf.d/grange.conf": "required $D/grange_spank.so\n"},
			"task-prolog", batch.Warning},
		"oci without exec": {map[string]string{"oci.conf": "RunTimeRun=\"grange slurm oci run\"\n"},
			"oci", batch.Broken},
		"task epilog":     {map[string]string{"slurm.conf": "TaskEpilog=/site/epilog\n"}, "task-epilog", batch.Warning},
		"job requeue off": {map[string]string{"slurm.conf": "JobRequeue=0\n"}, "requeue", batch.Warning},
		"over-memory kill": {map[string]string{"slurm.conf": "JobAcctGatherParams=OverMemoryKill\n"},
			"over-memory-kill", batch.Advice},
		"cores not confined": {map[string]string{"cgroup.conf": "\n"}, "constrain-cores", batch.Warning},
		"metal allowed": {map[string]string{"plugstack.conf.d/grange.conf": "required $D/grange_spank.so " +
			"default=micro allow_metal=yes\n"}, "default-image", batch.Advice},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, good)
			write(t, dir, c.files)
			if got := levels(t, dir)[c.id]; got != c.want {
				t.Errorf("%s: %q, want %q", c.id, got, c.want)
			}
		})
	}
}

func TestReadConfRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"no value": "ClusterName\n", "a circle": "include slurm.conf\n",
		"a missing file": "include gone\n"} {
		write(t, dir, map[string]string{"slurm.conf": text})
		if c, err := ReadConf(filepath.Join(dir, "slurm.conf")); err == nil && !c.Missing {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func TestInstall(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"etc/slurm/slurm.conf": "ClusterName=a\nEpilog=/site/epilog\n"})
	i := Install{Root: dir, ConfDir: "/etc/slurm", PluginDir: "/usr/lib/grange", Wrapper: "/usr/bin/grange",
		Socket: "/s", Checked: "/a", MinUID: 500, Default: "micro", Include: "/nowhere"}
	p, err := i.Plan()
	if err != nil || len(p.Files) != 3 || len(p.Edits) != 2 {
		t.Fatalf("%+v %v", p, err)
	}
	if diff := p.Edits[1].Diff(); !strings.Contains(diff, "+RequeueExit=199") ||
		!strings.Contains(diff, "+PrologFlags=Contain #") || !strings.Contains(diff, "+Prolog=/etc/slurm/prolog.d/*") || strings.Contains(diff, "\n-C") {
		t.Error(diff)
	}
	// The plug-in comes first: when it can not be compiled, nothing names it.
	if err := i.Apply(context.Background(), noSlurmd, p); err == nil {
		t.Error("compiled without headers")
	}
	if _, err := os.Stat(filepath.Join(dir, "etc/slurm/plugstack.conf.d/grange.conf")); err == nil {
		t.Error("a line names a plug-in that is not there")
	}
	write(t, dir, map[string]string{"include/slurm/spank.h": ""})
	i.Include = filepath.Join(dir, "include")
	compile := func(_ context.Context, c program.Call) ([]byte, error) {
		for n, arg := range c.Args {
			if arg == "-o" {
				return nil, os.WriteFile(c.Args[n+1], []byte("compiled"), 0o644)
			}
		}
		t.Error(c)
		return nil, nil
	}
	i.Write = true
	for range 2 { // the second time changes nothing
		if p, err = i.Plan(); err != nil {
			t.Fatal(err)
		}
		if err := i.Apply(context.Background(), compile, p); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range p.Files {
		if f.Has != "same" {
			t.Errorf("%s is %s the second time", f.Path, f.Has)
		}
	}
	if p, err = i.Plan(); err != nil || len(p.Edits) > 0 {
		t.Errorf("%+v", p.Edits)
	}
	conf := filepath.Join(dir, "etc/slurm/slurm.conf")
	uninstall := func(write bool) Removal {
		t.Helper()
		i.Write = write
		r, err := i.Removal()
		if err == nil {
			err = i.Uninstall(r)
		}
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	// slurm.conf still has the prolog started: one that matches no file would drain the host before each job.
	hook := filepath.Join(dir, "etc/slurm/prolog.d/50-grange")
	for _, write := range []bool{false, true} {
		r := uninstall(write)
		if len(r.Named) != 1 || len(r.Hollow) != 1 || len(r.Edits) != 2 ||
			!strings.Contains(r.Edits[1].Diff(), "-RequeueExit=199") {
			t.Errorf("%+v", r)
		}
		if text, err := os.ReadFile(hook); err != nil || string(text) != hollow {
			t.Errorf("%s %v", text, err)
		}
	}
	if text, err := os.ReadFile(conf); err != nil || string(text) != "ClusterName=a\nEpilog=/site/epilog\n" {
		t.Errorf("%s %v", text, err)
	}
	if r := uninstall(true); len(r.Hollow) > 0 || len(r.Edits) > 0 || !slices.Equal(r.Remove, []string{hook}) {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(hook); err == nil {
		t.Error("the prolog stays")
	}
}

func TestUninstallLeavesTheSitesOwn(t *testing.T) {
	for name, c := range map[string]struct{ files, want map[string]string }{
		"a list": {map[string]string{"slurm.conf": "Prolog=/site/p,/c/prolog.d/50-grange\nPrologFlags=Alloc\n"},
			map[string]string{"slurm.conf": "Prolog=/site/p\n"}},
		"others in the directories": {map[string]string{"slurm.conf": "Prolog=/c/prolog.d/*\nPrologFlags=Alloc\n",
			"prolog.d/10-site": "", "plugstack.conf": "include /c/plugstack.conf.d/*.conf\n",
			"plugstack.conf.d/site.conf": ""},
			map[string]string{"slurm.conf": "Prolog=/c/prolog.d/*\nPrologFlags=Alloc\n",
				"plugstack.conf": "include /c/plugstack.conf.d/*.conf\n"}},
		"a site's own prolog": {map[string]string{"slurm.conf": "Prolog=/site/p\n# Prolog=/site/p is set: let it end " +
			"with: exec /c/prolog.d/50-grange\nRequeueExit=199\n"},
			map[string]string{"slurm.conf": "Prolog=/site/p\n"}},
		"Contain of the site and of grange": {map[string]string{"slurm.conf": "Prolog=/c/prolog.d/50-grange\n" +
			"PrologFlags=Contain\n# PrologFlags=Alloc is set: add Contain\n" + ourFlags + "\n"},
			map[string]string{"slurm.conf": "PrologFlags=Contain\n"}},
		"nothing of ours": {map[string]string{"slurm.conf": "RequeueExit=199\n"},
			map[string]string{"slurm.conf": "RequeueExit=199\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "c")
			write(t, dir, map[string]string{"prolog.d/50-grange": "#!/bin/sh\n" + mark})
			write(t, dir, c.files)
			i := Install{Root: root, ConfDir: "/c", PluginDir: "/lib", Write: true}
			r, err := i.Removal()
			if err == nil {
				err = i.Uninstall(r)
			}
			if err != nil {
				t.Fatal(err)
			}
			for file, want := range c.want {
				if text, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(text) != want {
					t.Errorf("%s: %q %v", file, text, err)
				}
			}
		})
	}
}

func TestInstallDefault(t *testing.T) {
	for text, good := range map[string]bool{"": true, "el9": true, "el9:small": true, "sha256:0a:big": true,
		"@policy": true, "sha256:": false, "el9:": false, ":small": false, "a:b:c": false, "a b": false, "-x": false,
		"a:-x": false, "@others": false, strings.Repeat("a", 256): false} {
		i := Install{Root: t.TempDir(), ConfDir: "/etc/slurm", PluginDir: "/lib", Default: text}
		p, err := i.Plan()
		if (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
		if good && (p.NoConf == "" || text != "" && !strings.HasSuffix(p.Line, " default="+text)) {
			t.Errorf("%q: %+v", text, p)
		}
	}
}

// TestInstallMasksSu: where all jobs of users run in VMs, slurmd must not start their login shells either.
func TestInstallMasksSu(t *testing.T) {
	drop := "etc/systemd/system/slurmd.service.d/grange-no-su.conf"
	for name, c := range map[string]struct {
		change func(*Install)
		unit   string
		want   bool
	}{
		"VMs for all":        {func(*Install) {}, "lib/systemd/system/slurmd.service", true},
		"a unit of the site": {func(*Install) {}, "etc/systemd/system/slurmd.service", true},
		"no default":         {func(i *Install) { i.Default = "" }, "lib/systemd/system/slurmd.service", false},
		"metal allowed":      {func(i *Install) { i.Metal = true }, "lib/systemd/system/slurmd.service", false},
		"a submit host":      {func(i *Install) { i.Submit = true }, "lib/systemd/system/slurmd.service", false},
		"another Slurm": {func(i *Install) { i.ConfDir = "/opt/slurm/etc" },
			"lib/systemd/system/slurmd.service", false},
		"no systemd": {func(*Install) {}, "etc/init.d/slurmd", false},
	} {
		dir := t.TempDir()
		write(t, dir, map[string]string{c.unit: ""})
		i := Install{Root: dir, ConfDir: "/etc/slurm", PluginDir: "/usr/lib/grange", Wrapper: "/usr/bin/grange",
			Socket: "/s", Default: "micro"}
		c.change(&i)
		p, err := i.Plan()
		found := slices.ContainsFunc(p.Files, func(f File) bool { return f.Path == filepath.Join(dir, drop) })
		if err != nil || found != c.want || p.Restart != c.want {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	dir := t.TempDir()
	write(t, dir, map[string]string{drop: dropIn, "etc/slurm/slurm.conf": "ClusterName=a\n"})
	r, err := Install{Root: dir, ConfDir: "/etc/slurm", PluginDir: "/usr/lib/grange"}.Removal()
	if err != nil || !slices.Contains(r.Remove, filepath.Join(dir, drop)) {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestInstallKnowsFlags: what says the same in other words, or is one of several, lacks nothing; what only looks alike
// does.
func TestInstallKnowsFlags(t *testing.T) {
	for text, want := range map[string]string{
		"PrologFlags=Contain":                  "",
		"PrologFlags=X11,contain":              "",
		"PrologFlags=alloc":                    "# PrologFlags=alloc is set: add Contain",
		"PrologFlags=NoHold,Alloc":             "",
		"PrologFlags=X11":                      "",
		"PrologFlags=RunInJob":                 "",
		"PrologFlags=NoHold":                   "# PrologFlags=NoHold is set: add Alloc",
		"PrologFlags=Serial,NoContain":         "# PrologFlags=Serial,NoContain is set: add Contain",
		"RequeueExit=1990":                     "# RequeueExit=1990 is set: add 199",
		"Prolog=/site/p,/etc/slurm/prolog.d/*": "",
		"Prolog=/site/p,/etc/slurm/prolog.d/*.sh": "# Prolog=/site/p,/etc/slurm/prolog.d/*.sh is set: let it end " +
			"with: exec /etc/slurm/prolog.d/50-grange",
	} {
		dir := t.TempDir()
		key, _, _ := strings.Cut(text, "=")
		write(t, dir, map[string]string{"etc/slurm/slurm.conf": text + "\n"})
		p, err := Install{Root: dir, ConfDir: "/etc/slurm", PluginDir: "/usr/lib/grange", Wrapper: "/usr/bin/grange",
			Socket: "/s"}.Plan()
		if err != nil {
			t.Fatal(err)
		}
		var got string
		for _, line := range strings.Split(p.Edits[1].Diff(), "\n") {
			if rest, ok := strings.CutPrefix(line, "+"); ok &&
				(strings.HasPrefix(rest, "# "+key+"=") || strings.HasPrefix(rest, key+"=")) {
				got = rest
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
