package conform

import (
	"strings"
	"testing"
)

func TestTableKeepsOtherSystems(t *testing.T) {
	table := NewTable("")
	table.Add("Slurm 22.05.8", []Outcome{{Case: "exit 3", Verdict: Pass},
		{Case: "KILL", Verdict: Fail, Note: "late | very"}})
	table.Add("Grid Engine 8.1.9", []Outcome{{Case: "exit 3", Verdict: Absent, Note: "why: so"}})
	first := table.Markdown()

	again := NewTable("# A page\n\n" + first + "\nmore text\n")
	if got := again.Markdown(); got != first {
		t.Errorf("read and written again:\n%s\nwas:\n%s", got, first)
	}
	again.Add("Slurm 22.05.9", []Outcome{{Case: "exit 3", Verdict: Pass}})
	again.Add("Slurm 24.11.5", []Outcome{{Case: "exit 3", Verdict: Pass}})
	got := again.Markdown()
	for text, want := range map[string]bool{"Slurm 22.05.8": false, "| Slurm 22.05.9 | Slurm 24.11.5 |": true,
		"| exit 3 | the exit status is as on the host | none: why: so | pass | pass |": true, "late": false} {
		if strings.Contains(got, text) != want {
			t.Errorf("%q in the table: %t\n%s", text, !want, got)
		}
	}
}

func TestCasesHaveNamesOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Cases() {
		if seen[c.Name] || c.Name == "" || c.Holds == "" || c.run == nil || strings.ContainsAny(c.Name+c.Holds, "|\n") {
			t.Errorf("case %q", c.Name)
		}
		seen[c.Name] = true
	}
}
