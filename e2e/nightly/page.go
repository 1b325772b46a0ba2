package main

import (
	"fmt"
	"strings"
)

const pageHead = `# Evidence

<!-- Made by make evidence from evidence/rows.txt and evidence/*.json. Change those. -->

The rows of the mission, with the tests that prove each on its real component. State:

* proven: the tests prove the whole row.
* in part: the note says what is not proven or not built.
* not proven: the code exists, and the tests run parts of it away from the real component.
* not built: the code does not exist, but for what the tests run.

The date is that of the suite's last run that passed. docs/internals/evidence keeps the records of these runs, with
machine, time and figures. ` + "`make nightly`" + ` runs the suites.
` + "`make evidence`" + ` keeps the records and writes this page.

`

// page writes rows and suites as Markdown.
func page(parts []part, suites []suite, records map[string]record) string {
	var b strings.Builder
	b.WriteString(pageHead)
	counts := map[string]int{}
	for _, p := range parts {
		for _, r := range p.rows {
			counts[r.state()]++
		}
	}
	fmt.Fprintf(&b, "Rows proven: %d. In part: %d. Not proven: %d. Not built: %d. Suites with a record: %d of %d.\n",
		counts["proven"], counts["in part"], counts["not proven"], counts["not built"], len(records), len(suites))
	for _, p := range parts {
		fmt.Fprintf(&b, "\n## %s\n\n| row | feature | state | tests | last passed | note |\n", p.title)
		b.WriteString("|---|---|---|---|---|---|\n")
		for _, r := range p.rows {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n",
				r.id, r.title, r.state(), r.tests(), r.passed(records), r.reason())
		}
	}
	b.WriteString("\n## Suites\n\n| suite | command | last passed | seconds | on |\n|---|---|---|---|---|\n")
	for _, s := range suites {
		fmt.Fprintf(&b, "| %s | `%s` | %s |\n", s.name, s.command, records[s.name].line())
	}
	return b.String()
}

func (r row) tests() string {
	var all []string
	for _, p := range r.proofs {
		text := p.suite
		if p.name != "" {
			text += ": " + strings.TrimSpace(p.pkg+" "+p.name)
		}
		if p.sub != "" {
			text += "/" + p.sub
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// passed is when each suite of a row passed last.
func (r row) passed(records map[string]record) string {
	var all []string
	seen := map[string]bool{}
	for _, p := range r.proofs {
		if !seen[p.suite] {
			all = append(all, p.suite+": "+records[p.suite].when())
		}
		seen[p.suite] = true
	}
	return strings.Join(all, "; ")
}

// when is the date and the commit of a record; the zero record is of a suite without one.
func (r record) when() string {
	if len(r.Attempts) == 0 {
		return "no record"
	}
	return fmt.Sprintf("%s, %.8s", r.last().Began.Format("2006-01-02 15:04"), r.Commit)
}

func (r record) line() string {
	if len(r.Attempts) == 0 {
		return "no record | | "
	}
	return fmt.Sprintf("%s | %d | %d CPUs of %s, %d GiB, Linux %s", r.when(), r.last().Seconds, r.Machine.CPUs,
		r.Machine.Model, r.Machine.MemoryGiB, r.Machine.Kernel)
}
