package incidents

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/store"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func codeOf(err error) farm.Code {
	if e, ok := errors.AsType[*farm.Error](err); ok {
		return e.Code
	}
	return ""
}

// TestBegun: what an incident may begin as; without more it is minor, and begins now.
func TestBegun(t *testing.T) {
	for name, c := range map[string]struct {
		o    Opening
		code farm.Code
	}{
		"a title":           {Opening{Title: " slow disks "}, ""},
		"none":              {Opening{Title: " \n"}, CodeBadIncident},
		"the longest":       {Opening{Title: strings.Repeat("ü", MaxTitle)}, ""},
		"a longer one":      {Opening{Title: strings.Repeat("ü", MaxTitle+1)}, CodeBadIncident},
		"of two lines":      {Opening{Title: "a\nb"}, CodeBadIncident},
		"that moves text":   {Opening{Title: "a\u202eb"}, CodeBadIncident},
		"no severity":       {Opening{Title: "a", Severity: "huge"}, CodeBadIncident},
		"a severity":        {Opening{Title: "a", Severity: farm.SeverityCritical}, ""},
		"it comes":          {Opening{Title: "a", Began: noon.Add(time.Hour)}, CodeBadIncident},
		"by a clock before": {Opening{Title: "a", Began: noon.Add(time.Minute)}, ""},
		"lines":             {Opening{Title: "a", Text: "b\r\n\tc"}, ""},
		"no text":           {Opening{Title: "a", Text: "\x1b[2J"}, CodeBadIncident},
		"no UTF-8":          {Opening{Title: "a", Text: "\xff"}, CodeBadIncident},
		"a long text":       {Opening{Title: "a", Text: strings.Repeat("b", MaxText+1)}, CodeBadIncident},
	} {
		if _, err := begun(c.o, noon); codeOf(err) != c.code {
			t.Errorf("%s: %v, not %q", name, err, c.code)
		}
	}
	got, err := begun(Opening{Title: " slow disks "}, noon)
	want := farm.Incident{Title: "slow disks", Severity: farm.SeverityMinor, Opened: noon, Began: noon}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

// TestClosed: an incident is closed once, at a time that can be; what it was before is there when it is opened again.
func TestClosed(t *testing.T) {
	open := farm.Incident{ID: 1, Began: noon}
	for name, c := range map[string]struct {
		ended time.Time
		code  farm.Code
		want  time.Time
	}{
		"now":          {time.Time{}, "", noon.Add(time.Hour)},
		"earlier":      {noon.Add(time.Minute), "", noon.Add(time.Minute)},
		"before it":    {noon.Add(-time.Minute), CodeBadIncident, time.Time{}},
		"in an hour":   {noon.Add(2 * time.Hour), CodeBadIncident, time.Time{}},
		"as it began":  {noon, "", noon},
		"another zone": {noon.Add(time.Minute).In(time.FixedZone("", 3600)), "", noon.Add(time.Minute)},
	} {
		i := open
		if err := closed(&i, "", c.ended, noon.Add(time.Hour)); codeOf(err) != c.code || i.Ended != c.want ||
			i.Closed != (c.code == "") {
			t.Errorf("%s: %v, %v, %v", name, err, i.Closed, i.Ended)
		}
	}
	i := open
	if err := reopened(&i, ""); codeOf(err) != CodeIncidentState {
		t.Errorf("an open one reopened: %v", err)
	}
	if err := errors.Join(closed(&i, "", noon, noon), reopened(&i, "")); err != nil || i.Closed || !i.Ended.IsZero() {
		t.Errorf("%v: %+v", err, i)
	}
	if err := errors.Join(closed(&i, "", noon, noon)); err != nil {
		t.Error(err)
	}
	if err := closed(&i, "", noon, noon); codeOf(err) != CodeIncidentState {
		t.Errorf("closed twice: %v", err)
	}
}

// TestBounds: nothing grows without end, each refusal says what to do, and what is full can be closed.
func TestBounds(t *testing.T) {
	full := farm.Incident{ID: 1, Entries: MaxEntries}
	for kind, code := range map[farm.IncidentEntryKind]farm.Code{farm.EntryNote: CodeIncidentFull,
		farm.EntryLinked: CodeIncidentFull, farm.EntryClosed: "", farm.EntryReopened: ""} {
		if err := roomForEntry(full, kind); codeOf(err) != code {
			t.Errorf("%s of a full one: %v", kind, err)
		}
	}
	full.Entries += closings
	if err := roomForEntry(full, farm.EntryClosed); codeOf(err) != CodeIncidentFull {
		t.Errorf("closed and reopened for ever: %v", err)
	}
	in := func(of int) map[string]int { return map[string]int{"p": of, "q": 1} }
	for name, c := range map[string]struct {
		n    store.IncidentCount
		code farm.Code
	}{
		"some":                   {store.IncidentCount{All: 10, Opener: 10, Projects: in(10)}, ""},
		"one's most":             {store.IncidentCount{All: MaxOpener, Opener: MaxOpener}, CodeIncidentFull},
		"all, of others":         {store.IncidentCount{All: MaxAll, Opener: MaxSpare - 1}, ""},
		"all, also one's own":    {store.IncidentCount{All: MaxAll, Opener: MaxSpare}, CodeIncidentFull},
		"a project's, of others": {store.IncidentCount{Opener: MaxSpare - 1, Projects: in(MaxProject)}, ""},
		"a project's, also one's own": {store.IncidentCount{Opener: MaxSpare, Projects: in(MaxProject)},
			CodeIncidentFull},
		"a project's, before the most": {store.IncidentCount{Opener: MaxSpare, Projects: in(MaxProject - 1)}, ""},
	} {
		if err := checkCount(c.n, "ann"); codeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	var many []farm.Concern
	for n := range MaxConcerns + 1 {
		many = append(many, farm.Concern{Kind: farm.ConcernFinding, Name: strings.Repeat("a", n+1)})
	}
	if all, added, err := merged(many[:MaxConcerns], many[:MaxConcerns]); err != nil || len(all) != MaxConcerns ||
		len(added) != 0 {
		t.Errorf("the same again: %d, %d, %v", len(all), len(added), err)
	}
	if _, _, err := merged(many[:1], many); codeOf(err) != CodeIncidentFull {
		t.Errorf("too many things: %v", err)
	}
	one, other := farm.Incident{ID: 1}, farm.Incident{ID: 2}
	if err := joined(&one, &other); err != nil || one.Links[0] != 2 || other.Links[0] != 1 {
		t.Errorf("%v: %v, %v", err, one.Links, other.Links)
	}
	if err := joined(&one, &one); codeOf(err) != CodeBadIncident {
		t.Errorf("linked to itself: %v", err)
	}
	other.Links = make([]int64, MaxLinks)
	if err := joined(&one, &other); codeOf(err) != CodeIncidentFull {
		t.Errorf("too many links: %v", err)
	}
	for name, ok := range map[string]bool{"host-swap-in-use": true, "": false, "Host": false, "a b": false,
		strings.Repeat("a", maxRule+1): false} {
		if err := checkRule(name); (err == nil) != ok {
			t.Errorf("rule %q: %v", name, err)
		}
	}
}

// TestMerged: a VM that is named again has the cell that it is in now; one of the same name that was made later is
// another one.
func TestMerged(t *testing.T) {
	early := farm.Concern{Kind: farm.ConcernVM, Name: "p/a", ID: "v1", Project: "p"}
	placed, later := early, early
	placed.Cell, later.ID = "c", "v2"
	all, added, err := merged([]farm.Concern{early}, []farm.Concern{placed, later, later})
	if d := cmp.Diff([][]farm.Concern{{placed, later}, {placed, later}}, [][]farm.Concern{all, added}); d != "" ||
		err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

// TestPlaces: rights come from where things are. Findings are nowhere.
func TestPlaces(t *testing.T) {
	swap := farm.Concern{Kind: farm.ConcernFinding, Name: "host-swap-in-use"}
	host := farm.Concern{Kind: farm.ConcernHost, Name: "h", ID: "1", Cell: "c"}
	for name, c := range map[string]struct {
		concerns []farm.Concern
		want     []policy.Target
	}{
		"nothing":   {nil, []policy.Target{{Owner: "ann"}}},
		"a finding": {[]farm.Concern{swap}, []policy.Target{{Owner: "ann"}}},
		"two of a cell": {[]farm.Concern{swap, host, {Kind: farm.ConcernCell, Name: "c", Cell: "c"}},
			[]policy.Target{{Cell: "c", Owner: "ann"}}},
		"a VM too": {[]farm.Concern{host, {Kind: farm.ConcernVM, Name: "p/a", Project: "p", Cell: "c"}},
			[]policy.Target{{Cell: "c", Owner: "ann"}, {Project: "p", Cell: "c", Owner: "ann"}}},
	} {
		if d := cmp.Diff(c.want, places(farm.Incident{Opener: "ann", Concerns: c.concerns})); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// TestWithin: what a list reads has all that its reader may read.
func TestWithin(t *testing.T) {
	ann := farm.Identity{User: "ann"}
	for name, c := range map[string]struct {
		who    farm.Identity
		grants []farm.Grant
		want   []store.IncidentWord
	}{
		"root":   {farm.Identity{Root: true}, nil, nil},
		"nobody": {ann, nil, []store.IncidentWord{}},
		"some": {ann, []farm.Grant{{User: "ann", Project: "p"}, {User: "ann", Cell: "c"},
			{User: "ann", Project: "q", Cell: "d"}}, []store.IncidentWord{{Kind: store.InProject, Word: "p"},
			{Kind: store.InCell, Word: "c"}, {Kind: store.InProject, Word: "q"}}},
		"everywhere": {ann, []farm.Grant{{User: "ann", Project: "p"}, {User: "ann"}}, nil},
	} {
		if d := cmp.Diff(c.want, within(c.who, c.grants)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}
