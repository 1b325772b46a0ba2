package apiserver

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api/fleet"
)

// TestIncidents: the life of an incident by requests, of a member and of root.
func TestIncidents(t *testing.T) {
	l := newLab(t)
	ctx, ann, root := t.Context(), l.ann(), l.root()
	began := time.Now().UTC().Add(-time.Hour).Truncate(time.Second)
	atlas := fleet.Concerns{Projects: []string{"atlas"}, Findings: []string{"ksm-on"}}
	i, err := ann.Incidents.Open(ctx, fleet.IncidentRequest{Title: "jobs are slow", Severity: "major", Text: "all",
		Began: &began, Concerns: atlas}, "")
	if err != nil || i.ID != 1 || i.State != "open" || i.OpenedBy != "ann" || !i.Began.Equal(began) || i.Ended != nil {
		t.Fatalf("%+v, %v", i, err)
	}
	if d := cmp.Diff(atlas, i.Concerns); d != "" {
		t.Errorf("what it concerns (-want +got):\n%s", d)
	}
	for range 2 { // a request whose answer was lost
		if i, err = root.Incidents.Note(ctx, 1, fleet.IncidentNote{Text: "of all cells"}, "k"); err != nil {
			t.Fatal(err)
		}
	}
	if len(i.Entries) != 2 || i.Entries[1].Who != "root" || i.Entries[1].Text != "of all cells" {
		t.Errorf("entries: %+v", i.Entries)
	}
	if _, err := root.Incidents.Open(ctx, fleet.IncidentRequest{Title: "a switch",
		Concerns: fleet.Concerns{Cells: []string{"east"}}, Incidents: []int64{1}}, ""); err != nil {
		t.Fatal(err)
	}
	i, err = ann.Incidents.Get(ctx, 1)
	if err != nil || len(i.Incidents) != 1 || i.Incidents[0].ID != 2 || i.Incidents[0].Title+i.Incidents[0].State != "" {
		t.Errorf("linked to one that ann may not read: %+v, %v", i.Incidents, err)
	}
	if _, err := ann.Incidents.Close(ctx, 1, fleet.IncidentEnd{}, 1); status(err) != http.StatusConflict {
		t.Errorf("closed at a revision that is over: %v", err)
	}
	ended := began.Add(time.Minute)
	i, err = ann.Incidents.Close(ctx, 1, fleet.IncidentEnd{Text: "it was the switch", Ended: &ended}, i.Revision)
	if err != nil || i.State != "closed" || i.Ended == nil || !i.Ended.Equal(ended) {
		t.Errorf("closed: %+v, %v", i, err)
	}
	east := fleet.Concerns{Cells: []string{"east"}}
	i, err = root.Incidents.Link(ctx, 1, fleet.IncidentLink{Concerns: east})
	if err != nil || len(i.Concerns.Cells) != 1 {
		t.Errorf("linked: %+v, %v", i, err)
	}
	if i, err = root.Incidents.Reopen(ctx, 1, "again"); err != nil || i.State != "open" || i.Ended != nil {
		t.Errorf("reopened: %+v, %v", i, err)
	}
	for want, err := range map[int]error{
		http.StatusForbidden:  second(ann.Incidents.Get(ctx, 2)),
		http.StatusNotFound:   second(ann.Incidents.Get(ctx, 3)),
		http.StatusBadRequest: second(ann.Incidents.Open(ctx, fleet.IncidentRequest{Title: "a\nb", Concerns: atlas}, "")),
		http.StatusConflict:   second(root.Incidents.Reopen(ctx, 1, "")),
	} {
		if status(err) != want {
			t.Errorf("%v, not %d", err, want)
		}
	}
}

// TestIncidentList: pages of a list, and what is chosen.
func TestIncidentList(t *testing.T) {
	l := newLab(t)
	ctx, root := t.Context(), l.root()
	for _, title := range []string{"1", "2", "3"} {
		if _, err := root.Incidents.Open(ctx, fleet.IncidentRequest{Title: title,
			Concerns: fleet.Concerns{Findings: []string{"rule-" + title}}}, ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := root.Incidents.Close(ctx, 2, fleet.IncidentEnd{}, 0); err != nil {
		t.Fatal(err)
	}
	titles := func(q fleet.IncidentQuery, limit int) string {
		t.Helper()
		all, err := root.Incidents.List(ctx, q, limit)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, i := range all {
			out = append(out, i.Title)
			if len(i.Entries) > 0 {
				t.Errorf("%s has entries in a list", i.Title)
			}
		}
		return strings.Join(out, " ")
	}
	for want, got := range map[string]string{
		"3 2 1": titles(fleet.IncidentQuery{}, 0), "3 2": titles(fleet.IncidentQuery{}, 2),
		"3 1": titles(fleet.IncidentQuery{State: "open"}, 0), "2": titles(fleet.IncidentQuery{State: "closed"}, 0),
		"1": titles(fleet.IncidentQuery{Finding: "rule-1"}, 0),
		"":  titles(fleet.IncidentQuery{Since: time.Now().Add(time.Hour)}, 0)} {
		if got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	for path, want := range map[string]string{"/v1/incidents?limit=2": `"next":"2"`,
		"/v1/incidents?limit=2&after=2": `"title":"1"`, "/v1/incidents?after=x": "grange:bad-request",
		"/v1/incidents?state=lost": "grange:bad-request", "/v1/incidents/0": "grange:bad-request"} {
		if _, body := l.ask("GET", path, ""); !strings.Contains(body, want) {
			t.Errorf("%s has no %s: %s", path, want, body)
		}
	}
}

func second[T any](_ T, err error) error { return err }
