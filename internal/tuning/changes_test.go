package tuning_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/tuning"
	"github.com/grange-project/grange/internal/tuning/tuningtest"
)

// The changes that a finding offers must mend it, alone and together with those of all other findings on the same host.
// tuningtest makes them on the tree's files; internal/tuning/apply makes them on hosts.

func TestChangesMend(t *testing.T) {
	for _, r := range tuning.Rules() {
		path := "testdata/rules/" + r.ID + ".txtar"
		if _, err := os.Stat(path); err != nil {
			continue // TestRulesFireAndAreQuiet tells
		}
		t.Run(r.ID, func(t *testing.T) {
			files, p := tuning.RuleTree(t, path, "fires")
			found := r.Check(tuning.HostOf(t, files), p)
			for left := range mendable(r.Check(tuning.HostOf(t, changed(t, files, found)), p)) {
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
			var files map[string]string
			var p tuning.Profile
			if strings.Contains(path, "/rules/") {
				files, p = tuning.RuleTree(t, path, "fires")
			} else {
				files = tuning.HostTree(t, path)
				p = tuning.Choose(tuning.HostOf(t, files), tuning.Compute)
			}
			found := tuning.Audited(tuning.HostOf(t, files), p)
			contradict(t, found)
			for left := range mendable(tuning.Audited(tuning.HostOf(t, changed(t, files, found)), p)) {
				t.Errorf("after all changes are made, there is still %s", left)
			}
		})
	}
}

// mendable are the findings that offer changes.
func mendable(found []tuning.Finding) map[string]bool {
	out := map[string]bool{}
	for _, f := range found {
		if len(f.Changes) > 0 {
			out[f.Rule+" "+f.Where+": "+f.Got] = true
		}
	}
	return out
}

// contradict fails where two findings want different things of one setting.
func contradict(t *testing.T, found []tuning.Finding) {
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

func changed(t *testing.T, files map[string]string, found []tuning.Finding) map[string]string {
	t.Helper()
	out := maps.Clone(files)
	for _, f := range found {
		for _, c := range f.Changes {
			if err := tuningtest.Change(out, c); err != nil {
				t.Errorf("%s: %v", f.Rule, err)
			}
		}
	}
	return out
}
