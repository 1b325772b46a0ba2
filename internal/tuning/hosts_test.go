package tuning

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

// The recorded hosts of testdata/hosts, each with what an expert would find on it: severity, rule and place.
func TestRecordedHosts(t *testing.T) {
	hosts, err := filepath.Glob("testdata/hosts/*.txtar")
	if err != nil || len(hosts) == 0 {
		t.Fatalf("no recorded hosts: %v", err)
	}
	for _, path := range hosts {
		t.Run(filepath.Base(path), func(t *testing.T) {
			h := hostOf(t, readArchive(t, path).files)
			role := DefaultRole(h)
			r, err := Audit(h, Choose(h, role), role, Options{})
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for _, f := range r.Findings() {
				fmt.Fprintf(&b, "%v %s %s\n", f.Severity, f.Rule, f.Where)
			}
			golden := strings.TrimSuffix(path, ".txtar") + ".findings"
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
				t.Errorf("findings changed; -update writes them anew\n%s", d)
			}
		})
	}
}

// What the documents make certain must be found, whatever the golden files come to say.
func TestTheLessonsOf2015(t *testing.T) {
	for host, rules := range map[string][]string{
		"cern-2015-before": {"ept-off", "ksm-on-compute", "ksmtuned-running", "hugepages-none", "vm-cpu-model",
			"vm-not-pinned", "vm-no-guest-numa", "vm-topology-sockets"},
		"cern-2015-pages": {"hugepages-uneven", "tuned-1189868", "vm-not-pinned"},
	} {
		h := hostOf(t, readArchive(t, "testdata/hosts/"+host+".txtar").files)
		r, err := Audit(h, Choose(h, Compute), Compute, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Profile.Name != "cern-e5-2650v2-compute" {
			t.Errorf("%s: profile %s", host, r.Profile.Name)
		}
		found := map[string]bool{}
		for _, f := range r.Findings() {
			found[f.Rule] = true
		}
		for _, id := range rules {
			if !found[id] {
				t.Errorf("%s: %s is not found", host, id)
			}
		}
		if host == "cern-2015-pages" && found["ept-off"] {
			t.Errorf("%s: EPT is on there", host)
		}
	}
}

// pagingOff is advice to turn hardware page tables off, in the words in which it was once given.
var pagingOff = regexp.MustCompile(
	`(?i)\b(ept|enable_ept|npt) ?= ?(0|n|off)\b|\b(turn|switch|set) (ept|npt|hardware page tables) off|\b(turn|switch) off (ept|npt)|\bdisable (ept|npt|hardware page tables)`)

// The advice turned round in September 2015: off made some jobs several times slower. It must not come back by any way.
func TestNothingAdvisesPagingOff(t *testing.T) {
	for _, text := range []string{"options kvm_intel ept=0", "Turn EPT off", "disable NPT", "set kvm_amd.npt = N"} {
		if !pagingOff.MatchString(text) {
			t.Errorf("the test does not know %q", text)
		}
	}
	check := func(rule, text string) {
		if s := pagingOff.FindString(text); s != "" {
			t.Errorf("%s advises %q in: %s", rule, s, text)
		}
	}
	for _, r := range Rules() {
		check(r.ID, r.Fix)
		files := readArchive(t, "testdata/rules/"+r.ID+".txtar")
		h, p := files.side(t, "fires")
		for _, f := range r.Check(h, p) {
			check(r.ID, f.Wanted)
			check(r.ID, f.Manual)
			for _, c := range f.Changes {
				checkChange(t, r.ID, c)
			}
		}
	}
	off := Change{Kind: SetModule, Unit: "kvm_intel", Name: "ept", Value: "0"}
	if farm.Switch(off.Value).On() {
		t.Error("the test of changes takes 0 for on")
	}
}
