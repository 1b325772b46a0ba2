package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

func jobID(n byte) string { return "00000000-0000-4000-8000-00000000000" + string([]byte{'0' + n}) }

// aJob is a job that was asked for so many minutes after noon.
func (l *lab) aJob(n byte, state string) fleet.Job {
	return fleet.Job{ID: jobID(n), Kind: api.UsageJob, State: state, User: "ann", Account: "atlas-acc", Cores: 8,
		Asked: l.clock().Add(time.Duration(n) * time.Minute)}
}

func (l *lab) reportJobs(of farm.Identity, all ...fleet.Job) {
	l.t.Helper()
	if err := l.Usage.TakeJobs(l.t.Context(), of, fleet.HostJobs{Jobs: all}); err != nil {
		l.t.Fatal(err)
	}
}

// listed are the jobs of a query, as "state ID's digit", over pages of two.
func (l *lab) listed(who farm.Identity, q fleet.JobQuery) string {
	l.t.Helper()
	var all []string
	q.Limit = 2
	for {
		page, err := l.Usage.Active(l.t.Context(), who, q)
		if err != nil {
			l.t.Fatal(err)
		}
		if len(page.Items) > 2 {
			l.t.Errorf("a page of %d", len(page.Items))
		}
		for _, j := range page.Items {
			all = append(all, j.State+" "+j.ID[len(j.ID)-1:])
		}
		if q.After = page.Next; q.After == "" {
			return strings.Join(all, ", ")
		}
	}
}

// TestActiveJobs: the newest first, of what is chosen; one that has a record has ended.
func TestActiveJobs(t *testing.T) {
	l, of, record := usageLab(t)
	l.pass(-21 * 24 * time.Hour) // records are of October
	waits := l.aJob(3, "waiting")
	waits.Why, waits.User, waits.Account = "2 jobs are before it", "bob", ""
	l.reportJobs(of, l.aJob(1, "running"), l.aJob(2, "starting"), waits)
	for _, c := range []struct {
		q    fleet.JobQuery
		want string
	}{
		{fleet.JobQuery{}, "waiting 3, starting 2, running 1"},
		{fleet.JobQuery{State: "running"}, "running 1"},
		{fleet.JobQuery{User: "bob"}, "waiting 3"},
		{fleet.JobQuery{Host: "wn-1", Cell: "east", Project: "atlas"}, "starting 2, running 1"},
		{fleet.JobQuery{Host: "wn-2"}, ""},
	} {
		if got := l.listed(site, c.q); got != c.want {
			t.Errorf("%+v: %s, want %s", c.q, got, c.want)
		}
	}
	u := record(1)
	u.Job = jobID(1)
	l.takes(of, 1, 0, u) // its host says a little later that it has it no more
	if got := l.listed(site, fleet.JobQuery{}); got != "waiting 3, starting 2" {
		t.Error(got)
	}
	l.reportJobs(of, l.aJob(2, "running"))
	l.pass(32 * 24 * time.Hour)
	page, err := l.Usage.Active(t.Context(), site, fleet.JobQuery{})
	if err != nil || len(page.Items) != 1 || !page.Items[0].Silent {
		t.Errorf("of a host that is not heard of: %+v, %v", page.Items, err)
	}
	for _, q := range []fleet.JobQuery{{State: "happy"}, {State: "ended"}, {After: "x"}} {
		if _, err := l.Usage.Active(t.Context(), site, q); code(err) != farm.CodeBadRequest {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// TestWhoSeesActiveJobs: as of usage, a project's and a cell's; nobody is told of another's job that it is there.
func TestWhoSeesActiveJobs(t *testing.T) {
	l, of, _ := usageLab(t)
	other := l.aJob(2, "running")
	other.Account, other.User = "", "eve"
	l.reportJobs(of, l.aJob(1, "running"), other)
	l.update(func(tx *store.Tx) error {
		return tx.PutGrant(farm.Grant{User: "cell", Role: farm.RoleReader, Cell: "east"})
	})
	cell := farm.Identity{User: "cell"}
	for _, c := range []struct {
		who  farm.Identity
		want string
	}{{site, "running 2, running 1"}, {cell, "running 2, running 1"}, {otto, "running 1"}, {ann, ""}, {eve, ""}} {
		if got := l.listed(c.who, fleet.JobQuery{}); got != c.want {
			t.Errorf("%s: %s, want %s", c.who.User, got, c.want)
		}
		for n := byte(1); n <= 2; n++ {
			_, err := l.Usage.Job(t.Context(), c.who, jobID(n))
			if sees := strings.Contains(c.want, jobID(n)[35:]); sees != (err == nil) || !sees && code(err) != "no-job" {
				t.Errorf("%s, job %d: %v", c.who.User, n, err)
			}
		}
	}
	l.Usage.SameNames = true
	if got := l.listed(eve, fleet.JobQuery{}); got != "running 2" {
		t.Errorf("where accounts are users: %s", got)
	}
	if _, err := l.Usage.Active(t.Context(), of, fleet.JobQuery{}); code(err) != farm.CodeNoRole {
		t.Error(err)
	}
}

// TestJobOfRecord: the phases of a start reach the server, and a job is found by its ID and by its record's, before its
// end and after it.
func TestJobOfRecord(t *testing.T) {
	l, of, record := usageLab(t)
	phases := []api.StartPhase{{Name: "image", At: 1, Milliseconds: 2}, {Name: "boot", At: 3, Milliseconds: 800}}
	j := l.aJob(1, "running")
	j.Phases = append(phases, api.StartPhase{Name: "late", At: -5}, api.StartPhase{Name: "\x1b[1m", Milliseconds: 1})
	j.Image, j.Record, j.Host = "sl9\n", &api.Usage{}, "wn-9"
	l.reportJobs(of, j)
	got, err := l.Usage.Job(t.Context(), site, j.ID)
	want := j
	want.Phases = append(phases, api.StartPhase{Name: "?[1m", Milliseconds: 1})
	want.Image, want.Record, want.Host, want.Cell, want.Project = "sl9 ", nil, "wn-1", "east", "atlas"
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	u := record(7)
	u.Job, u.Phases, u.Asked, u.Ended = j.ID, j.Phases, j.Asked, "exit:3"
	l.takes(of, 1, 0, u)
	for _, id := range []string{j.ID, u.ID} {
		got, err := l.Usage.Job(t.Context(), site, id)
		if err != nil || got.State != "ended" || got.ID != j.ID || got.Record == nil || got.Record.Ended != "exit:3" ||
			!got.Asked.Equal(j.Asked) || len(got.Phases) != 3 {
			t.Errorf("%s: %+v, %v", id, got, err)
		}
	}
}

// TestBadJobs: a host that says what makes no sense keeps none of its other jobs from being seen.
func TestBadJobs(t *testing.T) {
	l, of, _ := usageLab(t)
	bad := func(n byte, change func(*fleet.Job)) fleet.Job {
		j := l.aJob(n, "running")
		change(&j)
		return j
	}
	all := []fleet.Job{l.aJob(1, "running"), l.aJob(1, "waiting"), l.aJob(2, "happy"), l.aJob(3, "ended"),
		bad(4, func(j *fleet.Job) { j.ID = "../4" }), bad(5, func(j *fleet.Job) { j.Cores = -1 }),
		bad(6, func(j *fleet.Job) { j.Kind = api.UsageMetal }), bad(7, func(j *fleet.Job) { j.Asked = time.Time{} })}
	for range 2 * fleet.MaxHostJobs {
		all = append(all, l.aJob(8, "happy"))
	}
	l.reportJobs(of, append(all, l.aJob(9, "running"))...)
	if got := l.listed(site, fleet.JobQuery{}); got != "running 1" {
		t.Error(got)
	}
	l.reportJobs(of)
	if got := l.listed(site, fleet.JobQuery{}); got != "" {
		t.Error(got)
	}
}

// TestSlowHosts: by the boots of records that the caller may see; a start that was tried again is none to compare.
func TestSlowHosts(t *testing.T) {
	l, of, record := usageLab(t)
	now := l.clock()
	l.now = record(1).Start
	var ids [3]farm.Identity
	for i := range ids {
		ids[i] = of
		if i > 0 {
			ids[i].Host = l.host(fmt.Sprintf("peer-%d", i), "east").ID
		}
	}
	l.now = now
	for n := range 20 {
		for i, host := range ids {
			u := later(record(1), time.Duration(n)*time.Hour)
			u.ID, u.Hardware, u.Image = api.NewID(), "amd", "worker"
			boot := 5000 + float64(n*10)
			if i == 0 {
				boot *= 1.5
			}
			u.Phases = []api.StartPhase{{Name: "define", Milliseconds: 9e9}, {Name: "boot", Milliseconds: boot}}
			if n == 19 { // which would be very slow
				u.Phases = append(u.Phases, api.StartPhase{Name: "boot", Milliseconds: 9e9})
			}
			l.takes(host, 1, 0, u)
		}
	}
	out, err := l.Usage.SlowHosts(t.Context(), site, "east", time.Time{})
	if err != nil || out.Starts != 57 || out.Compared != 3 || len(out.Items) != 1 || out.Items[0].Host != "wn-1" ||
		out.Items[0].Ratio < 1.45 || out.Items[0].Ratio > 1.55 || out.Items[0].PeerHosts != 2 {
		t.Errorf("%+v, %v", out, err)
	}
	if out, err := l.Usage.SlowHosts(t.Context(), ann, "", time.Time{}); err != nil || out.Starts != 0 {
		t.Errorf("of nobody: %+v, %v", out, err)
	}
	if _, err := l.Usage.SlowHosts(t.Context(), farm.Identity{}, "", time.Time{}); code(err) != farm.CodeNoRole {
		t.Error(err)
	}
}
