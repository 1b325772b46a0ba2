package setup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/batchtest"
	"github.com/grange-project/grange/internal/farm"
)

// findingsOf checks a recorded site: the good one with some files replaced.
func findingsOf(t *testing.T, files map[string]string, change func(*Site)) []batch.Finding {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, good)
	write(t, dir, files)
	s, err := ReadSite(t.Context(), noSlurmd, filepath.Join(dir, "slurm.conf"))
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&s)
	}
	return Check(s)
}

// TestCheckForeignPlugins: made after public problem reports. A required plug-in of others that does not load ends
// every job of the host; an optional one is passed over.
func TestCheckForeignPlugins(t *testing.T) {
	plugin := string(batchtest.Plugin(24, 11))
	older := string(batchtest.Plugin(23, 2))
	for name, c := range map[string]struct {
		files map[string]string
		want  []string // parts of what is found, in order
	}{
		"none": {nil, nil},
		"missing, absolute and relative": {map[string]string{"slurm.conf": good["slurm.conf"] + "PluginDir=$D/a:$D/b\n",
			"plugstack.conf": good["plugstack.conf"] + "required /opt/site/lib/chroot.so\nrequired chroot.so\n"},
			[]string{"plugstack.conf:2 required /opt/site/lib/chroot.so is missing",
				"plugstack.conf:3 required chroot.so is missing in $D/a:$D/b"}},
		"missing, and optional": {map[string]string{"plugstack.conf.d/auks.conf": "optional auks.so default=enabled\n"}, nil},
		"in an included file": {map[string]string{"plugstack.conf.d/x.conf": "\n# x\nrequired /nowhere/x.so\n"},
			[]string{"x.conf:3 required /nowhere/x.so is missing"}},
		"there": {map[string]string{"slurm.conf": good["slurm.conf"] + "PluginDir=$D/a:$D/b\n", "b/x.so": plugin,
			"plugstack.conf.d/x.conf": "required x.so\nrequired $D/b/x.so a=b\n"}, nil},
		"a script": {map[string]string{"x.so": "#!/bin/sh\n", "plugstack.conf.d/x.conf": "required $D/x.so\n"},
			[]string{"x.conf:1 required $D/x.so is not a plug-in"}},
		"of another release": {map[string]string{"x.so": older, "plugstack.conf.d/x.conf": "required $D/x.so\n"},
			[]string{"x.conf:1 required $D/x.so is for Slurm 23.02.0, and slurmd is 24.11.5"}},
		"of another release, and optional": {map[string]string{"x.so": older,
			"plugstack.conf.d/x.conf": "optional $D/x.so\n"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var dir string
			found := findingsOf(t, c.files, func(s *Site) { dir = filepath.Dir(s.Slurm.Path) })
			var got []string
			for _, f := range found {
				if f.ID != otherPlugins || f.Level == batch.Good {
					continue
				}
				if f.Level != batch.Broken || f.Why == "" || f.Do == "" {
					t.Errorf("%+v", f)
				}
				got = append(got, filepath.Base(f.Where)+" "+f.Found)
			}
			if len(got) != len(c.want) {
				t.Fatalf("%q, want %q", got, c.want)
			}
			for i, want := range c.want {
				if !strings.HasPrefix(got[i], strings.ReplaceAll(want, "$D", dir)) {
					t.Errorf("%q, want %q", got[i], want)
				}
			}
			if submit := SubmitOnly(found); len(c.want) > 0 && batch.Worst(submit) != batch.Broken {
				t.Error("on a submit host it keeps people from submitting, and is not reported there")
			}
		})
	}
}

// TestPluginDirs: where PluginDir is not set, the directory is the one that Slurm was built with.
func TestPluginDirs(t *testing.T) {
	root := fstest.MapFS{"usr/lib/x86_64-linux-gnu/slurm-wlm/x.so": {}, "opt/slurm/lib/slurm/y.so": {},
		"srv/slurm/lib64/slurm/z.so": {}, "proc/7/comm": {Data: []byte("slurmd\n")},
		"proc/7/exe": {Data: []byte("/srv/slurm/sbin/slurmd"), Mode: os.ModeSymlink}}
	s := Site{Root: root, Slurm: Conf{Path: "/opt/slurm/etc/slurm.conf"}}
	for _, name := range []string{"x.so", "y.so", "z.so"} {
		if s.inPluginDir(s.pluginDirs(), name) == "" {
			t.Errorf("%s is not found in %q", name, s.pluginDirs())
		}
	}
}

// TestCheckRealMemory: made after public problem reports. A site writes RealMemory as slurmd -C prints it, and jobs of
// whole nodes then fit no VM.
func TestCheckRealMemory(t *testing.T) {
	const gib = farm.GiB
	host := func(files fstest.MapFS) func(*Site) {
		return func(s *Site) { s.Root, s.Grants = files, 11*gib }
	}
	named := fstest.MapFS{"proc/sys/kernel/hostname": {Data: []byte("node07.site.test\n")}}
	dashN := fstest.MapFS{"proc/sys/kernel/hostname": {Data: []byte("vm\n")}, "proc/9/comm": {Data: []byte("slurmd\n")},
		"proc/9/cmdline": {Data: []byte("slurmd\x00-N\x00n2\x00")}}
	for name, c := range map[string]struct {
		nodes string
		host  func(*Site)
		want  string // part of what is found and done; "": nothing
	}{
		"too much":            {"NodeName=node[01-20] RealMemory=12121", host(named), "RealMemory=12121 MemSpecLimit=857"},
		"as much as there is": {"NodeName=node[01-20] RealMemory=11264", host(named), ""},
		"one MiB more":        {"NodeName=node[01-20] RealMemory=11265", host(named), "grants VMs 11264M"},
		"less, by the spec":   {"NodeName=node07 RealMemory=12121 MemSpecLimit=1024", host(named), ""},
		"spec is too small":   {"NodeName=node07 RealMemory=12121 MemSpecLimit=512", host(named), "RealMemory=11776"},
		"by a default":        {"NodeName=DEFAULT RealMemory=12121\nNodeName=node[01-09]", host(named), "12121"},
		"of others":           {"NodeName=big RealMemory=99999\nNodeName=node07 RealMemory=9000", host(named), ""},
		"by another name": {"NodeName=a RealMemory=12121\nNodeName=b NodeHostname=node07 RealMemory=9000",
			host(named), ""},
		"of slurmd -N":         {"NodeName=n1 RealMemory=9000\nNodeName=n[2-3] RealMemory=12121", host(dashN), "of n[2-3]"},
		"names nobody":         {"NodeName=x[1-9] RealMemory=12121", host(named), "of x[1-9]"},
		"names nobody, differ": {"NodeName=x RealMemory=12121\nNodeName=y RealMemory=9000", host(named), ""},
		"not set":              {"NodeName=node07 CPUs=2", host(named), ""},
		"no node":              {"ClusterName=c", host(named), ""},
		"the host is unknown":  {"NodeName=node07 RealMemory=12121", func(s *Site) { s.Root = named }, ""},
	} {
		conf := strings.Replace(good["slurm.conf"], "NodeName=a CPUs=2", c.nodes, 1)
		found := findingsOf(t, map[string]string{"slurm.conf": conf}, c.host)
		i := slices.IndexFunc(found, func(f batch.Finding) bool { return f.ID == "real-memory" })
		f := found[i]
		text := f.Found + "; " + f.Do
		if (f.Level == batch.Warning) != (c.want != "") || !strings.Contains(text, c.want) || f.Where == "" {
			t.Errorf("%s: %+v", name, f)
		}
		if c.want != "" && !strings.Contains(f.Why, "names no memory") {
			t.Errorf("%s: DefMemPerCPU is not set: %s", name, f.Why)
		}
	}
	f := findingsOf(t, map[string]string{"slurm.conf": good["slurm.conf"] + "DefMemPerCPU=500\n" +
		"NodeName=DEFAULT RealMemory=12121\nNodeName=node07\n"}, host(named))
	i := slices.IndexFunc(f, func(f batch.Finding) bool { return f.ID == "real-memory" })
	if !strings.Contains(f[i].Why, "whole node") || !strings.HasSuffix(f[i].Where, ":14") {
		t.Errorf("%+v", f[i])
	}
}

// TestCheckPrologFlags: without Contain each step of an salloc has a VM of its own.
func TestCheckPrologFlags(t *testing.T) {
	for value, c := range map[string]struct {
		want   batch.Level
		remedy string
	}{
		"":               {batch.Advice, "PrologFlags=Contain"},
		"Alloc":          {batch.Advice, "PrologFlags=Contain"},
		"NoContain":      {batch.Advice, "PrologFlags=Contain"},
		"Alloc,NoHold":   {batch.Advice, "without NoHold"},
		"Contain":        {batch.Good, ""},
		"alloc, contain": {batch.Good, ""},
		"X11":            {batch.Good, ""},
		"RunInJob":       {batch.Good, ""},
	} {
		conf := map[string]string{"slurm.conf": "PrologFlags=" + value + "\n"}
		f := batchtest.Findings(t, findingsOf(t, conf, nil))["prolog-flags"]
		if f.Level != c.want || !strings.Contains(f.Do, c.remedy) {
			t.Errorf("PrologFlags=%s: %+v", value, f)
		}
	}
}

// TestCheckConf: settings that grange did not write decide whether a VM job runs and is accounted.
func TestCheckConf(t *testing.T) {
	with := func(line string) map[string]string {
		return map[string]string{"slurm.conf": good["slurm.conf"] + line + "\n"}
	}
	devices := func(gres string) map[string]string {
		return map[string]string{"cgroup.conf": good["cgroup.conf"] + "ConstrainDevices=yes\n", "gres.conf": gres}
	}
	container := func(line string) map[string]string {
		return map[string]string{"slurm.conf": good["slurm.conf"] + "JobContainerType=job_container/tmpfs\n",
			"job_container.conf": "AutoBasePath=true\nBasePath=/local\n" + line}
	}
	reserved := func(s *Site) { s.ReservedCPUs = farm.NewCPUSet(0) }
	for name, c := range map[string]struct {
		files  map[string]string
		change func(*Site)
		id     string
		want   batch.Level
	}{
		"no accounting": {with("AccountingStorageType=accounting_storage/none"), nil,
			"accounting-storage", batch.Warning},
		"slurmdbd": {with("AccountingStorageType=accounting_storage/slurmdbd"), nil, "accounting-storage",
			batch.Good},
		"no hold": {with("SchedulerParameters=bf_continue,nohold_on_prolog_fail"), nil, "prolog-nohold",
			batch.Warning},
		"held":                {with("SchedulerParameters=bf_continue"), nil, "prolog-nohold", batch.Good},
		"a short prolog":      {with("PrologEpilogTimeout=5"), nil, "prolog-timeout", batch.Warning},
		"a prolog of minutes": {with("PrologEpilogTimeout=300"), nil, "prolog-timeout", batch.Good},
		"address space":       {with("VSizeFactor=110"), nil, "address-space", batch.Warning},
		"linear":              {with("SelectType=select/linear"), nil, "select", batch.Advice},
		"no samples":          {with("JobAcctGatherFrequency=task=0,energy=30"), nil, "sampling", batch.Warning},
		"samples":             {with("JobAcctGatherFrequency=task=30"), nil, "sampling", batch.Good},
		"CPUs of the host":    {with("AllowSpecResourcesUsage=1"), reserved, "reserved-cpus-usage", batch.Warning},
		"no CPUs of the host": {with("AllowSpecResourcesUsage=1"), nil, "reserved-cpus-usage", batch.Good},
		"no control groups": {map[string]string{"cgroup.conf": "CgroupPlugin=disabled\n"}, nil,
			"cgroup-plugin", batch.Broken},
		"kvm is a resource": {devices("Name=gpu File=/dev/nvidia0\nName=kvm File=/dev/kvm\n"), nil,
			"devices", batch.Broken},
		"kvm of one node": {devices("NodeName=a Name=kvm File=/dev/kvm\n"), nil, "devices", batch.Broken},
		"GPUs": {devices("AutoDetect=off\nName=gpu File=/dev/nvidia[0-3]\n"), nil,
			"devices", batch.Good},
		"/dev/shm of the job":   {container("Dirs=/dev/shm\n"), nil, "job-container", batch.Good},
		"/run of the job":       {container("Dirs=/tmp,/run\n"), nil, "job-container", batch.Broken},
		"/usr/local of the job": {container("Dirs=$D\n"), nil, "job-container", batch.Broken},
		"/runner of the job":    {container("Dirs=/runner\n"), nil, "job-container", batch.Good},
		"Dirs without a plug-in ": {map[string]string{"job_container.conf": "Dirs=/run\n"}, nil,
			"job-container", batch.Good},
	} {
		all := batchtest.Findings(t, findingsOf(t, c.files, c.change))
		if f := all[c.id]; f.Level != c.want || f.Where == "" {
			t.Errorf("%s: %+v, want %s", name, f, c.want)
		}
	}
}
