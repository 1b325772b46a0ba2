package incidents

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api/fleet"
)

// TestWrite: an incident for people, with all that may be in it.
func TestWrite(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.Local)
	ended := at.Add(time.Hour)
	i := fleet.Incident{ID: 17, State: "closed", Severity: "major", Title: "swap is full", Began: at, Ended: &ended,
		Concerns: fleet.Concerns{Hosts: []string{"wn-1"}, VMs: []string{"atlas/web"}}, Hidden: 1,
		Incidents: []fleet.LinkedIncident{{ID: 12, Title: "switch", State: "open"}, {ID: 13}},
		Entries: []fleet.IncidentEntry{
			{Time: at, Who: "ann", Kind: "opened", Severity: "minor", Text: "since noon\n\nall jobs",
				Concerns: fleet.Concerns{VMs: []string{"atlas/web"}}},
			{Time: at, Who: "olga", Kind: "linked", Concerns: fleet.Concerns{Hosts: []string{"wn-1"}},
				Incidents: []int64{12, 13}},
			{Time: at, Who: "olga", Kind: "note", Text: "more memory", Severity: "major"},
			{Time: ended, Who: "olga", Kind: "closed", Ended: &ended},
			{Time: ended, Who: "root", Kind: "pinned"}}}
	const want = `incident 17, closed, major: swap is full
  began     2026-11-21 12:00
  ended     2026-11-21 13:00
  concerns  host wn-1, VM atlas/web
            1 thing more that you may not see
  linked    12, open: switch
  linked    13, which you may not read

2026-11-21 12:00  ann opened it; about VM atlas/web; severity minor
  since noon
  all jobs

2026-11-21 12:00  olga added host wn-1; linked it to incident 12, 13

2026-11-21 12:00  olga wrote; severity major
  more memory

2026-11-21 13:00  olga closed it; over at 2026-11-21 13:00

2026-11-21 13:00  root pinned
`
	var out strings.Builder
	if err := write(&out, i); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
