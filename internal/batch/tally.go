package batch

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// Tally counts pending jobs of the same request together.
type Tally struct{ lines map[Demand]*Demand }

// Add counts d.Jobs jobs more.
func (t *Tally) Add(d Demand) {
	key := d
	key.Jobs, key.Oldest = 0, time.Time{}
	if t.lines == nil {
		t.lines = map[Demand]*Demand{}
	}
	line, ok := t.lines[key]
	if !ok {
		t.lines[key] = &d
		return
	}
	line.Jobs += d.Jobs
	if !d.Oldest.IsZero() && (line.Oldest.IsZero() || d.Oldest.Before(line.Oldest)) {
		line.Oldest = d.Oldest
	}
}

// Demand is all of it: most jobs first, then by name.
func (t *Tally) Demand() []Demand {
	var all []Demand
	for _, line := range t.lines {
		all = append(all, *line)
	}
	slices.SortFunc(all, func(a, b Demand) int {
		return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.Image, b.Image), cmp.Compare(a.Shape, b.Shape),
			cmp.Compare(a.CPUs, b.CPUs), cmp.Compare(a.Memory, b.Memory), cmp.Compare(a.Account, b.Account),
			cmp.Compare(a.Queue, b.Queue))
	})
	return all
}

// Elements counts those of an array that a list names: 1,4,10-20:2.
func Elements(list string) (int, error) {
	total := 0
	for part := range strings.SplitSeq(list, ",") {
		span, step, _ := strings.Cut(part, ":")
		first, last, ranged := strings.Cut(span, "-")
		a, err := strconv.Atoi(first)
		b, every := a, 1
		if ranged && err == nil {
			b, err = strconv.Atoi(last)
		}
		if step != "" && err == nil {
			every, err = strconv.Atoi(step)
		}
		if err != nil || b < a || every < 1 {
			return 0, fmt.Errorf("elements %q", list)
		}
		total += (b-a)/every + 1
	}
	return total, nil
}

// NoCursor is the error for a cursor that no driver of this system made. It is never taken for the start: jobs would
// count twice.
func NoCursor(system farm.BatchSystem, c Cursor) error {
	const most = 40
	text := string(c)
	if len(text) > most {
		text = text[:most] + "…"
	}
	return &farm.Error{Kind: farm.Invalid, Code: CodeBadCursor,
		Message: string(system) + ": invalid cursor of ended jobs: " + text,
		Hint:    "keep cursors as they are given; an empty one begins with the oldest job"}
}
