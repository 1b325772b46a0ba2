package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// TestIncidentCommands: an incident from its first entry to its last, by commands.
func TestIncidentCommands(t *testing.T) {
	l := newFarmLab(t)
	l.must("apply", "-f", l.file("farm.toml", "[cells.east]\nbroker = \"grange\"\n[projects.atlas]\n"))
	l.must("incident", "open", "jobs are slow", "-p", "atlas", "--finding", "ksm-on-compute", "--note", "all of them",
		"--severity", "major", "--began", "1h")
	if out, err := l.run("swap is full\non wn-1\n", "incident", "note", "1", "-"); err != nil ||
		!strings.Contains(out, "  swap is full\n  on wn-1\n") {
		t.Errorf("%v\n%s", err, out)
	}
	l.must("incident", "open", "the switch", "--cell", "east")
	l.must("incident", "link", "1", "--incident", "2", "--cell", "east", "the", "cause")
	if out := l.must("incident", "close", "1", "new", "switch"); !strings.HasPrefix(out, "incident 1, closed, major") ||
		!strings.Contains(out, "linked    2, open: the switch") || !strings.Contains(out, "  new switch\n") {
		t.Error(out)
	}
	if out := l.must("incident", "list"); strings.Contains(out, "jobs are slow") || !strings.Contains(out, "the switch") {
		t.Error(out)
	}
	out := l.must("incident", "list", "--state", "all", "--since", "1d", "--finding", "ksm-on-compute")
	if strings.Contains(out, "the switch") || !strings.Contains(out, "project atlas, cell east") && !strings.Contains(out, "finding ksm-on-compute") {
		t.Error(out)
	}
	l.must("incident", "reopen", "1")
	var i fleet.Incident
	if err := json.Unmarshal([]byte(l.must("incident", "show", "1", "--json")), &i); err != nil || i.State != "open" ||
		len(i.Entries) != 5 || i.Concerns.Cells[0] != "east" || i.Entries[4].Kind != "reopened" {
		t.Errorf("%+v, %v", i, err)
	}
	for _, args := range [][]string{{"incident", "show", "x"}, {"incident", "list", "--state", "lost"},
		{"incident", "open", "a", "--began", "noon"}, {"incident", "note", "1"}} {
		if _, err := l.run("", args...); !isUsage(err) {
			t.Errorf("%v: %v", args, err)
		}
	}
	for word, want := range map[string]string{"show": "1\tjobs are slow", "close": "2\tthe switch",
		"list --project": "atlas", "open a --cell": "east", "open a --finding": "ksm-on-compute\t", "note 1 a --severity": "critical",
	} {
		args := append([]string{"__complete", "incident"}, strings.Fields(word)...)
		if out := l.must(append(args, "")...); !strings.Contains(out, want) {
			t.Errorf("completion of %s has no %q:\n%s", word, want, out)
		}
	}
}

func isUsage(err error) bool { return farm.IsCode(err, farm.CodeUsage) }
