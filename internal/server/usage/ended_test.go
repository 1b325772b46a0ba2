package usage

import (
	"slices"
	"testing"
	"time"
)

// TestJoinPauses: hosts that join one after the other do not keep a batch system busy.
func TestJoinPauses(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 10, 9, 12, minute, 0, 0, time.UTC) }
	e := ended{Cursor: "9", Since: at(0).AddDate(0, -3, 0), Nodes: []string{"a"}}
	for _, step := range []struct {
		minute int
		nodes  []string
		again  bool // reads again from here on
		done   bool // and is at its end
	}{
		{0, []string{"a"}, false, false},
		{1, []string{"a", "b"}, true, false},
		{2, []string{"a", "b", "c"}, false, true},
		{3, []string{"a", "b", "c"}, false, false},
		{21, []string{"a", "b", "c"}, false, false},
		{22, []string{"a", "b", "c"}, true, true},
		{23, []string{"a", "b"}, false, false},
		{24, []string{"a", "b", "c"}, true, true},
	} {
		e.Cursor = "9"
		e.join(step.nodes, "2026-08", at(step.minute))
		if again := e.Cursor == ""; again != step.again {
			t.Errorf("minute %d: reads again: %v", step.minute, again)
		}
		if e.Again.underWay() && e.from() != time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC) {
			t.Errorf("minute %d: from %v", step.minute, e.from())
		}
		if step.done {
			e.finish(at(step.minute))
		}
	}
	if !slices.Equal(e.Nodes, []string{"a", "b", "c"}) || !e.from().Equal(e.Since) {
		t.Errorf("%+v", e)
	}
}
