package setup

import (
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
)

func TestCheckHost(t *testing.T) {
	runs := func(su string) fstest.MapFS {
		return fstest.MapFS{"proc/7/comm": {Data: []byte("slurmd\n")},
			"proc/7/root/usr/bin/su": {Data: []byte(su), Mode: 0o755},
			"proc/7/root/bin/false":  {Data: []byte("false"), Mode: 0o755},
			"proc/8/comm":            {Data: []byte("slurmctld\n")}}
	}
	conf := func(text string) fstest.MapFS { return fstest.MapFS{"etc/libvirt/qemu.conf": {Data: []byte(text)}} }
	inaccessible := runs("su")
	inaccessible["proc/7/root/usr/bin/su"].Mode = 0
	entry := func(args map[string]string) []Entry {
		return []Entry{{Path: "/usr/lib/" + PluginName, Required: true, Args: args}}
	}
	vms, both := entry(map[string]string{"default": "micro"}), entry(map[string]string{"default": "micro",
		"allow_metal": "yes"})
	su := fstest.MapFS{"usr/bin/su": {Data: []byte("su"), Mode: 0o755}}
	masked := fstest.MapFS{"usr/bin/su": su["usr/bin/su"],
		"etc/systemd/system/slurmd.service.d/grange-no-su.conf": {Data: []byte(dropIn)}}
	other := fstest.MapFS{"usr/bin/su": su["usr/bin/su"],
		"etc/systemd/system/slurmd.service.d/x.conf": {Data: []byte("# " + maskSu + "\n")}}
	for name, c := range map[string]struct {
		check func(Site) batch.Finding
		site  Site
		want  batch.Level
	}{
		"su works":             {checkUserEnv, Site{Root: runs("su")}, batch.Warning},
		"su is false":          {checkUserEnv, Site{Root: runs("false")}, batch.Good},
		"su is inaccessible":   {checkUserEnv, Site{Root: inaccessible}, batch.Good},
		"su, and VMs for all":  {checkUserEnv, Site{Root: runs("su"), Plugstack: vms}, batch.Broken},
		"su, and both":         {checkUserEnv, Site{Root: runs("su"), Plugstack: both}, batch.Warning},
		"no su":                {checkUserEnv, Site{Root: fstest.MapFS{}, Plugstack: vms}, batch.Good},
		"no slurmd":            {checkUserEnv, Site{Root: su}, batch.Warning},
		"no slurmd, and VMs":   {checkUserEnv, Site{Root: su, Plugstack: vms}, batch.Broken},
		"no slurmd, a drop-in": {checkUserEnv, Site{Root: masked, Plugstack: vms}, batch.Good},
		"a drop-in's remark":   {checkUserEnv, Site{Root: other, Plugstack: vms}, batch.Broken},
		"libvirt's default":    {checkLibvirtCgroups, Site{Root: conf("#cgroup_controllers = []\n")}, batch.Advice},
		"libvirt has some": {checkLibvirtCgroups,
			Site{Root: conf("cgroup_controllers = [ \"cpu\",\n \"memory\" ]\n")}, batch.Advice},
		"libvirt has none": {checkLibvirtCgroups,
			Site{Root: conf("a = 1\n cgroup_controllers = [ ]\n")}, batch.Good},
		"no libvirt":           {checkLibvirtCgroups, Site{Root: fstest.MapFS{}}, batch.Advice},
		"the usual slurm.conf": {checkAgentConf, Site{Slurm: Conf{Path: "/etc/slurm/slurm.conf"}}, batch.Good},
		"another slurm.conf":   {checkAgentConf, Site{Slurm: Conf{Path: "/opt/slurm/etc/slurm.conf"}}, batch.Advice},
	} {
		f := c.check(c.site)
		if f.Level != c.want || f.Found == "" || f.Level != batch.Good && (f.Why == "" || f.Do == "") {
			t.Errorf("%s: %+v, want %s", name, f, c.want)
		}
	}
}

// TestReservedCPUs: what the agent keeps for the host Slurm must keep from jobs.
func TestReservedCPUs(t *testing.T) {
	for text, want := range map[string]batch.Level{"NodeName=n[1-9] CPUs=8\n": batch.Warning, "": batch.Warning,
		"NodeName=n[1-9] CPUs=8 CoreSpecCount=1\n": batch.Good, "nodename=n1 CPUs=8 CPUSpecList=0-1\n": batch.Good} {
		dir := t.TempDir()
		write(t, dir, map[string]string{"slurm.conf": "ClusterName=c\n" + text})
		s, err := ReadSite(t.Context(), noSlurmd, filepath.Join(dir, "slurm.conf"))
		if err != nil {
			t.Fatal(err)
		}
		if f := checkReservedCPUs(s); f.Level != batch.Good {
			t.Errorf("nothing is reserved: %+v", f)
		}
		s.ReservedCPUs = farm.NewCPUSet(0, 1)
		if f := checkReservedCPUs(s); f.Level != want {
			t.Errorf("%q: %+v", text, f)
		}
	}
}
