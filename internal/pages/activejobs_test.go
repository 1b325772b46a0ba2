package pages

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

const activeJob = "00000000-0000-4000-8000-000000000001"

// hostJobs has h1 report jobs.
func (l *lab) hostJobs(all ...fleet.Job) {
	l.t.Helper()
	var rows []store.JobRow
	for _, j := range all {
		body, err := json.Marshal(j)
		if err != nil {
			l.t.Fatal(err)
		}
		rows = append(rows, store.JobRow{ID: j.ID, Kind: j.Kind, State: j.State, Owner: j.User, Project: j.Project,
			Asked: j.Asked, Body: body})
	}
	if _, err := l.store.Update(l.t.Context(), func(tx *store.Tx) error {
		h, err := tx.HostNamed("h1")
		if err != nil {
			return err
		}
		return tx.SetHostJobs(h.ID, rows)
	}); err != nil {
		l.t.Fatal(err)
	}
}

// TestActiveJobs: what waits says why, and a start is drawn; who sees what is as of usage.
func TestActiveJobs(t *testing.T) {
	l := newLab(t)
	l.shows("otto", "/jobs", "No job runs or waits that you may see.")
	l.hostJobs(fleet.Job{ID: activeJob, Kind: api.UsageJob, State: fleet.JobWaiting, Why: "<b>2</b> jobs are before it",
		Batch: "slurm/17", User: "bob", Cores: 4, Memory: 8 << 30, Asked: time.Now(),
		Phases: []api.StartPhase{{Name: "image", Milliseconds: 12}}})
	l.shows("otto", "/jobs", "slurm/17", "&lt;b&gt;2&lt;/b&gt; jobs are before it", "12 ms", `<rect class="held"`,
		`href="/jobs/`+activeJob+`"`, "4 × 8G")
	l.shows("otto", "/jobs?host=h1", "slurm/17")
	for _, path := range []string{"/jobs?kind=worker", "/jobs?kind=metal", "/jobs?user=eve", "/jobs?ended=done"} {
		l.lacks("otto", path, "slurm/17")
	}
	l.shows("otto", "/jobs/"+activeJob, "<h1>slurm/17", "before it", "image", "12 ms")
	l.lacks("ann", "/jobs", "slurm/17") // a member of atlas; the job is of nobody's project
	for path, want := range map[string]int{"/jobs/" + activeJob: http.StatusNotFound,
		"/jobs/rows?state=happy": http.StatusBadRequest} {
		if status, body, _ := l.as("eve", path, nil); status != want {
			t.Errorf("%s of eve: %d\n%s", path, status, body)
		}
	}
}

// TestJobPage: what a job that has ended took, phase by phase, and used.
func TestJobPage(t *testing.T) {
	l := newLab(t)
	id := ""
	l.ended(time.Minute, func(u *api.Usage) {
		bytes := uint64(1 << 20)
		id, u.Batch, u.Ended, u.Findings, u.Memory, u.MemoryPeak = u.ID, "slurm/17", "exit:3", 2, 2<<30, 1<<30
		u.NetworkIn, u.NetworkOut = &bytes, &bytes
		u.Phases = []api.StartPhase{{Name: "grant", Milliseconds: 3000}, {Name: "boot", At: 3000, Milliseconds: 1000}}
	})
	l.shows("ann", "/jobs", `href="/jobs/`+id+`"`)
	l.shows("ann", "/jobs/"+id, "<h1>slurm/17", "exit:3", "4 h on 4 CPUs", "2 findings when it began", "1M in, 1M out",
		"grant", "3.00 s", "4 × 2G", `<rect class="more" x="0" width="750" height="1"/>`, "1G at most")
	l.ended(time.Minute, func(u *api.Usage) { id, u.Kind, u.Ended = u.ID, api.UsageMetal, "exit:0" })
	l.shows("ann", "/jobs/"+id, "without a VM", "It had no VM")
	l.ended(time.Minute, func(u *api.Usage) { id, u.Kind = u.ID, api.UsageVM })
	if status, body, _ := l.as("ann", "/jobs/"+id, nil); status != http.StatusNotFound {
		t.Errorf("a cloud VM: %d\n%s", status, body)
	}
}

// TestJobsAreLive: a part is sent when something has changed, and not before.
func TestJobsAreLive(t *testing.T) {
	l := newLab(t)
	put := func(state string) {
		l.hostJobs(fleet.Job{ID: activeJob, Kind: api.UsageJob, State: state, Asked: time.Now().Add(-50 * time.Hour)})
	}
	put(fleet.JobWaiting)
	for _, path := range []string{"/jobs/rows?user=", "/jobs/" + activeJob + "/now?x="} {
		status, body, _ := l.as("otto", path, nil)
		_, poll, _ := strings.Cut(body, `hx-get="`)
		poll, _, _ = strings.Cut(poll, `"`)
		if status != http.StatusOK || !strings.Contains(poll, "seen=") || !strings.Contains(body, "waiting") {
			t.Fatalf("%s: %d\n%s", path, status, body)
		}
		poll = strings.ReplaceAll(poll, "&amp;", "&")
		if status, _, _ := l.as("otto", poll, nil); status != http.StatusNoContent {
			t.Errorf("%s without news: %d", poll, status)
		}
		put(fleet.JobRunning)
		if status, body, _ := l.as("otto", poll, nil); status != http.StatusOK || !strings.Contains(body, "running") {
			t.Errorf("%s with news: %d\n%s", poll, status, body)
		}
		put(fleet.JobWaiting)
	}
}

// TestPhaseBars: no bar leaves the drawing, and none is too thin to be seen.
func TestPhaseBars(t *testing.T) {
	bars := phaseBars([]api.StartPhase{{Name: "image", Milliseconds: 0.1}, {Name: "grant", At: 1, Milliseconds: 1e7},
		{Name: "guest", At: 1e7, Milliseconds: 1}})
	want := []phaseBar{{"image", "0 ms", "0 ms", 0, 4, "held"}, {"grant", "2 h 46 min", "1 ms", 0, 1000, "more"},
		{"guest", "1 ms", "2 h 46 min", 996, 4, "held"}}
	if d := cmp.Diff(want, bars, cmp.AllowUnexported(phaseBar{})); d != "" {
		t.Error(d)
	}
	if bars := phaseBars(nil); bars != nil {
		t.Error(bars)
	}
}

// TestDriftPage: what came and went of findings since a time that one chooses.
func TestDriftPage(t *testing.T) {
	l := newLab(t)
	l.shows("otto", "/audit", "What was found then is found now.")
	if _, err := l.store.Update(t.Context(), func(tx *store.Tx) error {
		h, err := tx.HostNamed("h1")
		if err != nil {
			return err
		}
		h.Facts.Audited = true
		h.Facts.Findings = []farm.HostFinding{{Rule: "ksm-on-compute", Severity: "warning", Places: 1}}
		if err := tx.SetHostFacts(h.ID, h.Facts); err != nil {
			return err
		}
		return tx.AddFindingChanges([]store.FindingChange{
			{Host: h.ID, At: time.Now(), Rule: "ksm-on-compute", Came: true, Updated: true},
			{Host: h.ID, At: time.Now(), Rule: "smt-off"},
			{Host: h.ID, At: time.Now().Add(-20 * 24 * time.Hour), Came: true}})
	}); err != nil {
		t.Fatal(err)
	}
	l.shows("otto", "/audit", "ksm-on-compute</a> came on 1 host", "smt-off</a> went on 1 host",
		"with another release of the agent", `href="/hosts/h1"`)
	l.lacks("otto", "/audit?since=week", "for the first time")
	l.shows("otto", "/audit?since=month", "1 host was audited for the first time")
	l.lacks("otto", "/audit?rule=smt-off", "ksm-on-compute</a> came")
	l.shows("eve", "/audit", "What was found then is found now.")
}
