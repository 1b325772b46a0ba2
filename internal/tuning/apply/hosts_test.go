package apply

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/hostfacts"
	"github.com/grange-project/grange/internal/tuning"
)

// host is a tree and what is wanted of it.
type host struct {
	files   map[string]string
	role    tuning.Role
	profile string // TOML; the one that fits when empty
}

func readHostFile(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return readArchive(t, string(text))
}

// audited is what an audit finds now.
func audited(t *testing.T, system System, h host) []tuning.Finding {
	t.Helper()
	facts, err := hostfacts.Read(system.Root().FS())
	if err != nil {
		t.Fatal(err)
	}
	profile := tuning.Choose(facts, h.role)
	if h.profile != "" {
		if profile, err = tuning.ParseProfile([]byte(h.profile), "profile.toml"); err != nil {
			t.Fatal(err)
		}
	}
	report, err := tuning.Audit(facts, profile, h.role, tuning.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return report.Findings()
}

// mend applies all that an audit of a host finds, and returns what is found after that. The undo leaves what was there.
func mend(t *testing.T, h host) []tuning.Finding {
	t.Helper()
	system := Tree(extract(t, h.files))
	before := look(t, system.Root())
	plan, err := NewPlan(t.Context(), system, audited(t, system, h))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Do(t.Context(), system, plan, Options{}); err != nil {
		t.Fatalf("%v\n%s", err, plan.Text(nil, 0))
	}
	left := audited(t, system, h)
	for _, f := range left {
		if len(f.Changes) > 0 {
			t.Errorf("after apply there is still %s, %s: wanted %s, found %s\n%s", f.Rule, f.Where, f.Wanted, f.Got,
				plan.Text(nil, 0))
		}
	}
	if len(plan.Steps) > 0 {
		if _, err := Undo(t.Context(), system, "", false, Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(before, look(t, system.Root())); d != "" {
		t.Errorf("after undo (-before +after):\n%s", d)
	}
	return left
}

// TestRecordedHosts tunes recorded hosts. What is left is for a person, and listed in testdata/hosts.
func TestRecordedHosts(t *testing.T) {
	hosts, err := filepath.Glob("../testdata/hosts/*.txtar")
	if err != nil || len(hosts) == 0 {
		t.Fatal("no hosts", err)
	}
	for _, path := range hosts {
		name := strings.TrimSuffix(filepath.Base(path), ".txtar")
		t.Run(name, func(t *testing.T) {
			h := host{files: readHostFile(t, path), role: tuning.Compute}
			compareLeft(t, name+".left", mend(t, h))
		})
		t.Run(name+" without its VMs", func(t *testing.T) {
			h := host{files: withoutVMs(readHostFile(t, path)), role: tuning.Compute}
			compareLeft(t, name+"-without-vms.left", mend(t, h))
		})
	}
}

// withoutVMs is a host on which the last VM has ended, as a change of modules or pages asks for.
func withoutVMs(files map[string]string) map[string]string {
	maps.DeleteFunc(files, func(name, text string) bool {
		return strings.HasPrefix(name, "run/libvirt/qemu/") || strings.HasSuffix(name, "/comm") &&
			isQEMU(strings.TrimSpace(text))
	})
	const guests = 58 << 20 // KiB that the VM of each of these hosts had
	if files[meminfo] != "" {
		files[meminfo] = addMemory(files[meminfo], map[string]int64{"MemFree": guests, "MemAvailable": guests})
	}
	for node := range 2 {
		if name := infoOf(node); files[name] != "" {
			files[name] = addMemory(files[name], map[string]int64{"MemFree": guests / 2})
		}
	}
	return files
}

func compareLeft(t *testing.T, golden string, left []tuning.Finding) {
	t.Helper()
	var b strings.Builder
	for _, f := range left {
		fmt.Fprintf(&b, "%v %s %s\n", f.Severity, f.Rule, f.Where)
	}
	golden = filepath.Join("testdata", "hosts", golden)
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("what is left for a person changed; -update writes it anew\n%s", d)
	}
}

// TestEveryRuleIsMended tunes the tree on which each rule fires.
func TestEveryRuleIsMended(t *testing.T) {
	trees, err := filepath.Glob("../testdata/rules/*.txtar")
	if err != nil || len(trees) == 0 {
		t.Fatal("no trees", err)
	}
	for _, path := range trees {
		if name := strings.TrimSuffix(filepath.Base(path), ".txtar"); !strings.HasPrefix(name, "base") {
			t.Run(name, func(t *testing.T) { mend(t, ruleHost(t, path)) })
		}
	}
}

// ruleHost lays the part of a rule's test on which it fires over the base, as internal/tuning's tests do.
func ruleHost(t *testing.T, path string) host {
	t.Helper()
	archive := readHostFile(t, path)
	h := host{role: tuning.Role(strings.TrimSpace(archive["role"])), profile: archive["fires/profile.toml"]}
	base := "../testdata/rules/base.txtar"
	switch h.role {
	case "":
		h.role = tuning.Compute
	case tuning.Guest:
		base = "../testdata/rules/base-guest.txtar"
	}
	h.files = readHostFile(t, base)
	for name, text := range archive {
		below, ok := strings.CutPrefix(name, "fires/")
		if !ok || below == "profile.toml" || below == "want" {
			continue
		}
		if text != "-\n" {
			h.files[below] = text
			continue
		}
		maps.DeleteFunc(h.files, func(have, _ string) bool {
			_, also := archive["fires/"+have]
			return (have == below || strings.HasPrefix(have, below+"/")) && (have == below || !also)
		})
	}
	return h
}
