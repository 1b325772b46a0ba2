package hostfacts_test

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hostfacts"
)

// TestTuned reads profiles as tuned 2.20 does: includes first, sections of one name merged, the site's own file before
// the packaged one, which it may include by its own name.
func TestTuned(t *testing.T) {
	const enabled, own = "sys/kernel/mm/transparent_hugepage/enabled", "etc/tuned/b/tuned.conf"
	vm := func(value string) farm.TunedSetting {
		return farm.TunedSetting{Path: enabled, Value: value, File: own, Unit: "vm", Option: "transparent_hugepages",
			Plain: true}
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  []farm.TunedSetting
	}{
		"no profile": {map[string]string{"usr/lib/tuned/b/tuned.conf": "[vm]\ntransparent_hugepages=never\n"}, nil},
		"missing":    {map[string]string{"etc/tuned/active_profile": "b\n"}, nil},
		"bad name":   {map[string]string{"etc/tuned/active_profile": "../b\n"}, nil},
		"packaged": {map[string]string{"etc/tuned/active_profile": "b\n",
			"usr/lib/tuned/b/tuned.conf": "[vm]\ntransparent_hugepages = \"never\"\n"},
			[]farm.TunedSetting{vm("never")}},
		"last counts": {map[string]string{"etc/tuned/active_profile": "a b\n",
			"usr/lib/tuned/a/tuned.conf": "[vm]\ntransparent_hugepages=never\n",
			own:                          "[vm]\ntransparent_hugepages=madvise\n"}, []farm.TunedSetting{vm("madvise")}},
		"own includes": {map[string]string{"etc/tuned/active_profile": "b",
			"usr/lib/tuned/b/tuned.conf": "[vm]\ntransparent_hugepages=never\ntransparent_hugepage.defrag=never\n",
			own:                          "[main]\ninclude=b\n[vm]\ndrop=transparent_hugepage.defrag\ntransparent_hugepages=always # ours\n"}, []farm.TunedSetting{vm("always")}},
		"circle": {map[string]string{"etc/tuned/active_profile": "b",
			"usr/lib/tuned/b/tuned.conf": "[main]\ninclude=a;b\n",
			"usr/lib/tuned/a/tuned.conf": "[main]\ninclude = b, a\n[vm]\ntransparent_hugepages=never\n"},
			[]farm.TunedSetting{vm("never")}},
		"replaced": {map[string]string{"etc/tuned/active_profile": "b",
			own:                          "[main]\ninclude=a\n[vm]\nreplace=true\n",
			"usr/lib/tuned/a/tuned.conf": "[vm]\ntransparent_hugepages=never\n"}, nil},
		"disabled": {map[string]string{"etc/tuned/active_profile": "b",
			own: "[vm]\nenabled=false\ntransparent_hugepages=never\n"}, nil},
		"variable": {map[string]string{"etc/tuned/active_profile": "b",
			own: "[vm]\ntransparent_hugepages=${pages}\n[variables]\npages=never\n"}, []farm.TunedSetting{vm("never")}},
		"function": {map[string]string{"etc/tuned/active_profile": "b",
			own: "[vm]\ntransparent_hugepages=${f:exec:choose}\n"}, nil},
		"command line": {map[string]string{"etc/tuned/active_profile": "b",
			"proc/cmdline": "transparent_hugepage=always", own: "[vm]\ntransparent_hugepages=never\n"}, nil},
		"for others": {map[string]string{"etc/tuned/active_profile": "b",
			own: "[vm]\ncpuinfo_regex=${who}\ntransparent_hugepages=never\n[variables]\nwho=AuthenticAMD\n"}, nil},
		"for us": {map[string]string{"etc/tuned/active_profile": "b",
			own: "[vm]\ncpuinfo_regex=vendor_id\\s+: Genuine\ntransparent_hugepages=never\n"},
			[]farm.TunedSetting{vm("never")}},
		"sysctl.d": {map[string]string{"etc/tuned/active_profile": "b", own: "[sysctl]\nvm.swappiness=60\n",
			"usr/lib/sysctl.d/50-a.conf": "vm/swappiness = 10\n"},
			[]farm.TunedSetting{{Path: "proc/sys/vm/swappiness", Value: "60", File: own, Unit: "sysctl",
				Option: "vm.swappiness", Plain: true, Overruled: true}}},
		"nothing in sysctl.d": {map[string]string{"etc/tuned/active_profile": "b",
			own: "[sysctl]\nvm.swappiness=60\n", "etc/sysctl.d/50-a.conf": "vm.dirty_ratio = 10\n"},
			[]farm.TunedSetting{{Path: "proc/sys/vm/swappiness", Value: "60", File: own, Unit: "sysctl",
				Option: "vm.swappiness", Plain: true}}},
		"sysctl": {map[string]string{"etc/tuned/active_profile": "b",
			"etc/tuned/tuned-main.conf": "# reapply_sysctl = 1\nreapply_sysctl = 0\n",
			own:                         "[sysctl]\nvm.swappiness=60\n"},
			[]farm.TunedSetting{{Path: "proc/sys/vm/swappiness", Value: "60", File: own, Unit: "sysctl",
				Option: "vm.swappiness", Plain: true}}},
		"devices": {map[string]string{"etc/tuned/active_profile": "b",
			own: "[cpu]\ndevices=cpu1\ngovernor=powersave\n[files]\ntype=sysfs\n/sys/a/*/b=1\n/etc/passwd=1\n"},
			[]farm.TunedSetting{
				{Path: "sys/devices/system/cpu/cpu*/cpufreq/scaling_governor", Value: "powersave", File: own,
					Unit: "cpu", Option: "governor"},
				{Path: "sys/a/*/b", Value: "1", File: own, Unit: "files", Option: "/sys/a/*/b"}}},
		"from 2.23 on": {map[string]string{"etc/tuned/active_profile": "b",
			"usr/lib/tuned/profiles/b/tuned.conf": "[vm]\ntransparent_hugepages=never\n"},
			[]farm.TunedSetting{{Path: enabled, Value: "never", File: "etc/tuned/profiles/b/tuned.conf", Unit: "vm",
				Option: "transparent_hugepages", Plain: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			tree := fstest.MapFS{}
			for _, files := range []map[string]string{whole, {"etc/tuned/active_profile": ""}, c.files} {
				for file, text := range files {
					tree[file] = &fstest.MapFile{Data: []byte(text)}
				}
			}
			h, err := hostfacts.Read(tree)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, h.Tuned); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
