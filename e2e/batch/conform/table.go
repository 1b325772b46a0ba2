package conform

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Table is the results of several systems, by case. It is kept as Markdown, so that a run on one machine need not have
// every system: the others' columns stay as they were.
type Table struct {
	systems []string                      // names with versions
	cells   map[string]map[string]Outcome // by system and case
	known   []string                      // cases in the order of the list
	holds   map[string]string
}

// NewTable reads the results that a page holds; a page that is empty, or no such page, holds none.
func NewTable(page string) *Table {
	t := &Table{cells: map[string]map[string]Outcome{}, holds: map[string]string{}}
	for _, c := range Cases() {
		t.known = append(t.known, c.Name)
		t.holds[c.Name] = c.Holds
	}
	var header []string
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !strings.HasPrefix(line, "|"):
		case cells[0] == "case":
			header = cells
		case slices.Contains(t.known, cells[0]) && len(cells) == len(header):
			for i := 2; i < len(cells); i++ {
				verdict, note, _ := strings.Cut(cells[i], ": ")
				if verdict != "" {
					t.set(header[i], Outcome{Case: cells[0], Verdict: Verdict(verdict), Note: note})
				}
			}
		}
	}
	return t
}

func (t *Table) set(system string, o Outcome) {
	if t.cells[system] == nil {
		t.cells[system] = map[string]Outcome{}
		t.systems = append(t.systems, system)
	}
	t.cells[system][o.Case] = o
}

// Add puts in what a system of this name gave. Results of other versions of the system go, unless they are of another
// release line that is tested beside it: `Slurm 22.05.8` and `Slurm 24.11.5` have both their columns.
func (t *Table) Add(system string, outcomes []Outcome) {
	t.systems = slices.DeleteFunc(t.systems, func(old string) bool {
		if old != system && line(old) == line(system) {
			delete(t.cells, old)
			return true
		}
		return false
	})
	for _, o := range outcomes {
		t.set(system, o)
	}
}

// line is a system's name with its release line: all but the last part of the version.
func line(system string) string {
	if i := strings.LastIndex(system, "."); i > 0 {
		return system[:i]
	}
	return system
}

// Markdown is the page's table.
func (t *Table) Markdown() string {
	systems := slices.SortedFunc(slices.Values(t.systems), cmp.Compare[string])
	var b strings.Builder
	fmt.Fprintf(&b, "| case | what must hold | %s |\n|---|---|%s\n", strings.Join(systems, " | "),
		strings.Repeat("---|", len(systems)))
	for _, name := range t.known {
		fmt.Fprintf(&b, "| %s | %s |", name, t.holds[name])
		for _, s := range systems {
			o := t.cells[s][name]
			text := string(o.Verdict)
			if o.Note != "" {
				text += ": " + strings.NewReplacer("|", "/", "\n", " ").Replace(o.Note)
			}
			fmt.Fprintf(&b, " %s |", text)
		}
		b.WriteString("\n")
	}
	return b.String()
}
