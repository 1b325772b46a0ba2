package apiserver

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// asked reads an answer to root.
func asked[T any](l *lab, path string) (v T) {
	l.t.Helper()
	answer, body := l.ask(http.MethodGet, path, "")
	if err := json.Unmarshal([]byte(body), &v); err != nil || answer.StatusCode != http.StatusOK {
		l.t.Fatalf("%s: %s %s, %v", path, answer.Status, body, err)
	}
	return v
}

func TestFindings(t *testing.T) {
	l := newLab(t)
	swap := farm.HostFinding{Rule: "swap", Severity: "warning", Places: 2}
	l.update(func(tx *store.Tx) error {
		return errors.Join(tx.InsertHost(farm.Host{ID: "1", Name: "a", Cell: "east", MachineID: "1",
			Facts: farm.Facts{Kind: "amd", Audited: true, Findings: []farm.HostFinding{swap}}}),
			tx.InsertHost(farm.Host{ID: "2", Name: "b", Cell: "east", MachineID: "2", Facts: farm.Facts{Kind: "amd"}}))
	})
	want := fleet.Findings{Hosts: 2, Unknown: 1, Rules: []fleet.RuleFindings{{Rule: "swap", Severity: "warning",
		Places: 2, Kinds: []fleet.KindFindings{{Kind: "amd", Hosts: 1, Of: 1}}, Hosts: []string{"a"}}}}
	if d := cmp.Diff(want, asked[fleet.Findings](l, "/v1/findings?cell=east&kind=amd")); d != "" {
		t.Error(d)
	}
	want = fleet.Findings{Hosts: 2, Unknown: 1, Clean: 1, Rules: []fleet.RuleFindings{}}
	if d := cmp.Diff(want, asked[fleet.Findings](l, "/v1/findings?severity=fault")); d != "" {
		t.Error(d)
	}
}

func TestJobs(t *testing.T) {
	l := newLab(t)
	end := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	l.update(func(tx *store.Tx) error {
		var all []error
		for i, id := range []string{"00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"} {
			u := api.Usage{ID: id, Kind: api.UsageJob, End: end.Add(time.Duration(i) * time.Hour),
				Ended: []string{"exit:1", "exit:0"}[i]}
			body, err := json.Marshal(u)
			_, put := tx.PutUsage(store.UsageRow{ID: id, Month: "2026-11", Kind: u.Kind, Ended: u.End, Body: body})
			all = append(all, err, put)
		}
		return errors.Join(all...)
	})
	first := asked[fleet.Page[api.Usage]](l, "/v1/jobs?limit=1")
	if len(first.Items) != 1 || first.Items[0].Ended != "exit:0" || first.Next == "" {
		t.Fatalf("%+v", first)
	}
	second := asked[fleet.Page[api.Usage]](l, "/v1/jobs?limit=1&after="+first.Next)
	if len(second.Items) != 1 || second.Items[0].Ended != "exit:1" || second.Next != "" {
		t.Errorf("%+v", second)
	}
	failed := asked[fleet.Page[api.Usage]](l, "/v1/jobs?outcome=failed")
	if len(failed.Items) != 1 || failed.Items[0].Ended != "exit:1" {
		t.Errorf("%+v", failed)
	}
	if late := asked[fleet.Page[api.Usage]](l, "/v1/jobs?since=2026-11-27T12:30:00Z"); len(late.Items) != 1 {
		t.Errorf("%+v", late)
	}
	if answer, body := l.ask(http.MethodGet, "/v1/jobs?outcome=odd", ""); answer.StatusCode/100 != 4 {
		t.Errorf("%s %s", answer.Status, body)
	}
}
