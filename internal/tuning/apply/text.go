package apply

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
)

// Text shows a plan to a person: each finding with what mends it, then all steps in order, files as diffs. Rules tell
// of dangers. Width is that of the terminal, 0 where there is none; steps and diffs are never broken.
func (p Plan) Text(rules []tuning.Rule, width int) string {
	var b strings.Builder
	for _, w := range p.Wants {
		w.text(&b, rules, width)
	}
	if len(p.Steps) == 0 {
		b.WriteString("nothing to change\n")
		return b.String()
	}
	fmt.Fprintf(&b, "%s, in this order:\n", farm.Count(len(p.Steps), "step"))
	for i, s := range p.Steps {
		fmt.Fprintf(&b, "%4d  %s%s\n", i+1, s, s.notes())
		for line := range strings.Lines(s.Diff()) {
			b.WriteString("      " + line)
		}
	}
	return b.String()
}

func (w Want) text(b *strings.Builder, rules []tuning.Rule, width int) {
	fmt.Fprint(b, tuning.Fold("", fmt.Sprintf("%s, %s, %s: wanted %s, found %s", w.Rule, w.Severity, w.Where, w.Wanted,
		w.Got), width))
	if i := slices.IndexFunc(rules, func(r tuning.Rule) bool { return r.ID == w.Rule }); i >= 0 &&
		rules[i].Danger != "" && len(w.Steps) > 0 {
		b.WriteString(tuning.Fold("  danger   ", rules[i].Danger, width))
	}
	if len(w.Steps) > 0 {
		b.WriteString(tuning.Fold("  steps    ", numbers(w.Steps), width))
	}
	for _, m := range w.Manual {
		b.WriteString(tuning.Fold("  by hand  ", m, width))
	}
	b.WriteString("\n")
}

// notes returns what a step waits for.
func (s Step) notes() string {
	var out string
	if s.NoVMs {
		out += "  [no VMs]"
	}
	if s.Reboot {
		out += "  [from the next boot on]"
	}
	return out
}

// numbers writes indices as people count: "1-3, 7".
func numbers(list []int) string {
	var out []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if i == j {
			out = append(out, fmt.Sprint(list[i]+1))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", list[i]+1, list[j]+1))
		}
		i = j + 1
	}
	return strings.Join(out, ", ")
}
