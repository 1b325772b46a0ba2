package apply

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/tuning"
)

// TestTunedProfile sets options in profiles that are there, and in ones that have to be made, and takes them back.
func TestTunedProfile(t *testing.T) {
	const file = "etc/tuned/site/tuned.conf"
	never := tuning.Change{Kind: tuning.SetTuned, Path: file, Unit: "vm", Name: "transparent_hugepages",
		Value: "always"}
	ksm := tuning.Change{Kind: tuning.SetTuned, Path: file, Unit: "sysfs", Name: "/sys/kernel/mm/ksm/run", Value: "0"}
	for name, c := range map[string]struct {
		old, want string
		changes   []tuning.Change
	}{
		"none": {"",
			header +
				"[main]\ninclude=site\n\n[vm]\ntransparent_hugepages=always\n\n[sysfs]\n/sys/kernel/mm/ksm/run=0\n",
			[]tuning.Change{never, ksm}},
		"has it": {"[vm]\ntransparent_hugepages = always\n", "[vm]\ntransparent_hugepages = always\n",
			[]tuning.Change{never}},
		"another": {"[cpu]\ntransparent_hugepages=x\n[vm]\ntransparent_hugepages = never # why\n",
			"[cpu]\ntransparent_hugepages=x\n[vm]\n" + marked +
				"transparent_hugepages = never # why\ntransparent_hugepages=always\n", []tuning.Change{never}},
		"twice": {"[vm]\ntransparent_hugepages=a\ntransparent_hugepages=b",
			"[vm]\n" + marked + "transparent_hugepages=a\ntransparent_hugepages=always\n" + marked +
				"transparent_hugepages=b\n", []tuning.Change{never}},
		"section": {"[vm]\nx=1\n[main]\ninclude=a", "[vm]\ntransparent_hugepages=always\nx=1\n[main]\ninclude=a",
			[]tuning.Change{never}},
		"neither": {"[main]\ninclude=a", "[main]\ninclude=a\n\n[vm]\ntransparent_hugepages=always\n",
			[]tuning.Change{never}},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"etc/tuned/active_profile": "site\n"}
			if c.old != "" {
				files[file] = c.old
			}
			root := extract(t, files)
			system := Tree(root)
			plan, err := NewPlan(t.Context(), system, []tuning.Finding{{Rule: "tuned-overrides", Changes: c.changes}})
			if err != nil {
				t.Fatal(err)
			}
			if len(plan.Steps) > 0 {
				if _, err := Do(t.Context(), system, plan, Options{}); err != nil {
					t.Fatal(err)
				}
			}
			now, err := readFile(root, file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, now.text()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if len(plan.Steps) == 0 {
				return
			}
			if _, err := Undo(t.Context(), system, "", false, Options{}); err != nil {
				t.Fatal(err)
			}
			if now, err = readFile(root, file); err != nil || now.text() != c.old || (now == nil) != (c.old == "") {
				t.Errorf("taken back: %v, %v", now, err)
			}
			if _, err := root.Stat("etc/tuned/site"); (err != nil) != (c.old == "") {
				t.Errorf("the profile's directory: %v", err)
			}
		})
	}
	for _, bad := range []tuning.Change{
		{Kind: tuning.SetTuned, Path: "etc/passwd", Unit: "vm", Name: "a", Value: "b"},
		{Kind: tuning.SetTuned, Path: "etc/tuned/../tuned.conf", Unit: "vm", Name: "a", Value: "b"},
		{Kind: tuning.SetTuned, Path: file, Unit: "vm]", Name: "a", Value: "b"},
		{Kind: tuning.SetTuned, Path: file, Unit: "vm", Name: "a=", Value: "b"},
		{Kind: tuning.SetTuned, Path: file, Unit: "vm", Name: "a", Value: "${f:exec:b}"},
		{Kind: tuning.SetTuned, Path: file, Unit: "vm", Name: "a", Value: "b\nc"},
	} {
		if checkChange(bad) == nil {
			t.Errorf("a change that no host has: %+v", bad)
		}
	}
}
