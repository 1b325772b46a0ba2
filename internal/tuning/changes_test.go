package tuning

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// The changes that a finding offers must mend it, alone and together with those of all other findings on the same host.
// Changes are made here on the tree's files, as a kernel would show them afterwards; internal/tuning/apply makes them
// for real.

func TestChangesMend(t *testing.T) {
	for _, r := range Rules() {
		path := "testdata/rules/" + r.ID + ".txtar"
		if _, err := os.Stat(path); err != nil {
			continue // TestRulesFireAndAreQuiet tells
		}
		t.Run(r.ID, func(t *testing.T) {
			a := readArchive(t, path)
			files, p := a.tree(t, "fires")
			found := r.Check(hostOf(t, files), p)
			for left := range mendable(r.Check(hostOf(t, changed(t, files, found)), p)) {
				t.Errorf("its own changes leave %s", left)
			}
		})
	}
}

func TestChangesOfAllFindingsMend(t *testing.T) {
	trees, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(trees) == 0 {
		t.Fatalf("no trees: %v", err)
	}
	for _, path := range trees {
		if strings.HasPrefix(filepath.Base(path), "base") {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			a := readArchive(t, path)
			files, p := a.files, Profile{}
			if strings.Contains(path, "/rules/") {
				files, p = a.tree(t, "fires")
			} else {
				p = Choose(hostOf(t, files), Compute)
			}
			found := audited(hostOf(t, files), p)
			contradict(t, found)
			for left := range mendable(audited(hostOf(t, changed(t, files, found)), p)) {
				t.Errorf("after all changes are made, there is still %s", left)
			}
		})
	}
}

// audited is what all rules for a profile's role find, with the rule's name.
func audited(h farm.HostFacts, p Profile) []Finding {
	var out []Finding
	for _, r := range Rules() {
		if r.For(p.Role) {
			for _, f := range r.Check(h, p) {
				f.Rule = r.ID
				out = append(out, f)
			}
		}
	}
	return out
}

// mendable are the findings that offer changes.
func mendable(found []Finding) map[string]bool {
	out := map[string]bool{}
	for _, f := range found {
		if len(f.Changes) > 0 {
			out[f.Rule+" "+f.Where+": "+f.Got] = true
		}
	}
	return out
}

// contradict fails where two findings want different things of one setting.
func contradict(t *testing.T, found []Finding) {
	t.Helper()
	wants := map[string]string{}
	for _, f := range found {
		for _, c := range f.Changes {
			key, value := string(c.Kind)+" "+c.Path+c.Unit+" "+c.Name, c.Value
			if c.Remove {
				value = "-"
			}
			if old, ok := wants[key]; ok && old != value {
				t.Errorf("%s wants %q of %s, another rule %q", f.Rule, value, key, old)
			}
			wants[key] = value
		}
	}
}

// tree is one half of a rule's test as files.
func (a archive) tree(t *testing.T, dir string) (map[string]string, Profile) {
	t.Helper()
	_, p := a.side(t, dir)
	role := Role(strings.TrimSpace(a.files["role"]))
	if role == "" {
		role = Compute
	}
	files := a.under(dir)
	delete(files, "profile.toml")
	delete(files, "want")
	return overlay(baseOf(t, role), files), p
}

func changed(t *testing.T, files map[string]string, found []Finding) map[string]string {
	t.Helper()
	out := maps.Clone(files)
	for _, f := range found {
		for _, c := range f.Changes {
			change(t, out, c)
		}
	}
	return out
}

func change(t *testing.T, files map[string]string, c Change) {
	t.Helper()
	switch c.Kind {
	case SetValue:
		if c.Reboot {
			return
		}
		old, ok := files[c.Path]
		if !ok {
			t.Errorf("there is no %s to write to", c.Path)
		}
		files[c.Path] = written(old, c.Value)
	case SetBoot:
		setBoot(files, c)
	case SetModule:
		files["etc/modprobe.d/zz-test.conf"] += "options " + c.Unit + " " + c.Name + "=" + c.Value + "\n"
		files["sys/module/"+c.Unit+"/parameters/"+c.Name] = map[string]string{"1": "Y\n", "0": "N\n"}[c.Value]
	case SetService:
		for name, text := range maps.Clone(files) {
			unit := strings.HasSuffix(name, ".wants/"+c.Unit+".service")
			runs := strings.HasSuffix(name, "/comm") && strings.TrimSpace(text) == c.Unit[:min(len(c.Unit), 15)]
			if c.Value == "off" && (unit || runs) {
				delete(files, name)
			}
		}
	case SetTuned:
		if files[c.Path] == "" {
			files[c.Path] = "[main]\ninclude=" + filepath.Base(filepath.Dir(c.Path)) + "\n"
		}
		files[c.Path] += "[" + c.Unit + "]\n" + c.Name + "=" + c.Value + "\n"
	case Unmerge:
		const dir = "sys/kernel/mm/ksm/"
		files[dir+"run"], files[dir+"pages_shared"], files[dir+"pages_sharing"] = "0\n", "0\n", "0\n"
	}
}

// written is what a file of /sys shows after a value was written to it.
func written(old, value string) string {
	if !strings.Contains(old, "[") {
		return value + "\n"
	}
	words := strings.Fields(strings.NewReplacer("[", "", "]", "").Replace(old))
	if i := slices.Index(words, value); i >= 0 {
		words[i] = "[" + value + "]"
	}
	return strings.Join(words, " ") + "\n"
}

// setBoot edits /etc/default/grub. Words about huge pages go together: a number belongs to the size before it.
func setBoot(files map[string]string, c Change) {
	const file = "etc/default/grub"
	var out strings.Builder
	for line := range strings.Lines(files[file]) {
		value, ok := strings.CutPrefix(strings.TrimSpace(line), `GRUB_CMDLINE_LINUX="`)
		if !ok {
			out.WriteString(line)
			continue
		}
		words := strings.Fields(strings.TrimSuffix(value, `"`))
		words = slices.DeleteFunc(words, func(w string) bool {
			name, _, _ := strings.Cut(w, "=")
			return sameParam(name, c.Name) || c.Name == "default_hugepagesz" &&
				(name == "hugepagesz" || name == "hugepages")
		})
		if !c.Remove {
			words = append(words, strings.TrimSuffix(c.Name+"="+c.Value, "="))
		}
		out.WriteString(`GRUB_CMDLINE_LINUX="` + strings.Join(words, " ") + "\"\n")
	}
	files[file] = out.String()
}
