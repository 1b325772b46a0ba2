package server

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// evesVM has been on the host of usageLab since it joined, and has 8 CPUs.
const evesVM = "00000000-0000-4000-8000-0000000000e0"

// usageLab has a host of 32 threads that joined on the 1st of October, and records of that month.
func usageLab(t *testing.T) (l *lab, of farm.Identity, record func(id byte) api.Usage) {
	t.Helper()
	l = newLab(t)
	now := l.clock()
	l.now = time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	h := l.machine("wn-1", "east")
	l.update(func(tx *store.Tx) error {
		return tx.InsertVM(farm.VM{ID: evesVM, Name: "eves", Owner: "eve", Host: h.ID, Cell: "east",
			Shape: farm.Shape{CPUs: 8, Memory: farm.GiB}})
	})
	l.now = now
	l.Usage.VOs = map[string]string{"a*": "/people", "atlas-acc": "/atlas/Role=production"}
	l.update(func(tx *store.Tx) error {
		return errors.Join(
			tx.PutProject(farm.Project{Name: "atlas", Account: "atlas-acc"}),
			tx.PutScore(farm.Score{Name: "s", Hardware: "amd", CPUs: 8, Core: 10, Unit: "HS06", Source: "Ann"}))
	})
	record = func(id byte) api.Usage {
		job := 600.0
		return api.Usage{ID: "00000000-0000-4000-8000-0000000000" + string([]byte{'0' + id/10, '0' + id%10}),
			Kind: api.UsageJob, User: "ann", Account: "atlas-acc", Hardware: "amd", Cores: 8,
			Start: time.Date(2026, 10, 20, 0, 0, 0, 0, time.UTC), End: time.Date(2026, 10, 20, 1, 0, 0, 0, time.UTC),
			Wall: 3600, CPU: new(7200.0), JobCPU: &job}
	}
	return l, farm.Identity{Host: h.ID, Means: "certificate"}, record
}

func (l *lab) takes(of farm.Identity, fresh, refused int, records ...api.Usage) {
	l.t.Helper()
	out, err := l.Usage.Take(l.t.Context(), of, fleet.UsageBatch{Records: records})
	if err != nil || out.New != fresh || out.Refused != refused {
		l.t.Errorf("%+v, %v; want %d new, %d refused", out, err, fresh, refused)
	}
}

// TestUsageOnce: a record is taken once, whatever a host brings again; one that makes no sense keeps no other waiting.
func TestUsageOnce(t *testing.T) {
	l, of, record := usageLab(t)
	bad, long := record(9), record(8)
	bad.CPU = new(-1.0)
	busy, ages := record(7), record(6)
	busy.CPU, ages.Wall = new(4*8*3600+3601.0), 9e9
	long.Image = strings.Repeat("x", 20000)
	l.takes(of, 2, 2, record(1), bad, record(2), long)
	l.takes(of, 0, 2, busy, ages)
	l.takes(of, 1, 0, record(1), record(2), record(3))
	if _, err := l.Usage.Take(t.Context(), of, fleet.UsageBatch{Records: make([]api.Usage, 501)}); code(err) !=
		"usage-too-long" {
		t.Error(err)
	}
	out, err := l.Usage.Sum(t.Context(), site, fleet.UsageQuery{From: "2026-10", To: "2026-10", By: "vo"})
	if err != nil || len(out.Lines) != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	got := out.Lines[0]
	if got.Key != "atlas" || got.Records != 3 || got.CoreHours != 24 || got.CPUHours != 6 || got.JobHours != 0.5 ||
		len(got.Scored) != 1 || got.Scored[0].ScoreHours != 240 || got.Scored[0].Unit != "HS06" {
		t.Errorf("%+v", got)
	}
	page, err := l.Usage.Records(t.Context(), site, fleet.UsageQuery{To: "2026-10"}, "", 2)
	if err != nil || len(page.Items) != 2 || page.Next != page.Items[1].ID {
		t.Fatalf("%+v, %v", page, err)
	}
	if u := page.Items[0]; u.Project != "atlas" || u.Host != "wn-1" || u.Cell != "east" || u.Score != 10 ||
		u.FQAN != "/atlas/Role=production" || u.Month != "2026-10" {
		t.Errorf("%+v", u)
	}
	page, err = l.Usage.Records(t.Context(), site, fleet.UsageQuery{To: "2026-10"}, page.Next, 2)
	if err != nil || len(page.Items) != 1 || page.Next != "" {
		t.Errorf("%+v, %v", page, err)
	}
}

// TestUsageOfAnotherSize: no score is made up.
func TestUsageOfAnotherSize(t *testing.T) {
	l, of, record := usageLab(t)
	small := record(1)
	small.Cores = 4
	l.takes(of, 2, 0, small, record(2))
	out, err := l.Usage.Sum(t.Context(), site, fleet.UsageQuery{To: "2026-10"})
	if err != nil || len(out.Lines) != 1 || out.Lines[0].CoreHours != 12 || out.Lines[0].Scored[0].CoreHours != 8 {
		t.Errorf("%+v, %v", out, err)
	}
}

// TestClosedMonth: what comes late counts in the month that is open, and says so; nobody opens a month again.
func TestClosedMonth(t *testing.T) {
	l, of, record := usageLab(t)
	l.takes(of, 1, 0, record(1))
	if _, err := l.Usage.CloseMonth(t.Context(), otto, "2026-10"); code(err) != farm.CodeNoRole {
		t.Error(err)
	}
	if _, err := l.Usage.CloseMonth(t.Context(), site, "2026-11"); code(err) != "month-open" {
		t.Error(err)
	}
	for _, month := range []string{"2026-10", "2026-09"} {
		if c, err := l.Usage.CloseMonth(t.Context(), site, month); err != nil || c.Month != "2026-10" || c.By != "site" {
			t.Errorf("%+v, %v", c, err)
		}
	}
	l.takes(of, 1, 0, record(1), record(2))
	out, err := l.Usage.Sum(t.Context(), site, fleet.UsageQuery{From: "2026-10", To: "2026-11", By: "month"})
	if err != nil || len(out.Lines) != 2 || out.Lines[0].Records != 1 || out.Lines[0].Late != 0 ||
		out.Lines[1].Records != 1 || out.Lines[1].Late != 1 || out.Closed != "2026-10" {
		t.Errorf("%+v, %v", out, err)
	}
}

// TestWhoSeesUsage: one's own, a project's by its members, all by who may read all.
func TestWhoSeesUsage(t *testing.T) {
	l, of, record := usageLab(t)
	mine, theirs := record(1), record(2)
	mine.Account, mine.User, mine.Kind, mine.VM = "", "bob", api.UsageVM, evesVM
	account := record(3) // eve's name, and nobody knows whose account
	account.Account, account.User = "", "eve"
	theirs.User = "bob"
	l.takes(of, 3, 0, mine, theirs, account)
	l.update(func(tx *store.Tx) error {
		return errors.Join(tx.PutGrant(farm.Grant{User: "cell", Role: farm.RoleReader, Cell: "east"}),
			tx.PutGrant(farm.Grant{User: "west", Role: farm.RoleReader, Cell: "west"}))
	})
	bounded := otto
	bounded.Projects = []string{"alice"}
	for _, c := range []struct {
		who  farm.Identity
		want int
	}{{site, 3}, {root, 3}, {eve, 1}, {otto, 1}, {ann, 0}, {farm.Identity{User: "cell"}, 3},
		{farm.Identity{User: "west"}, 0}} {
		page, err := l.Usage.Records(t.Context(), c.who, fleet.UsageQuery{To: "2026-10"}, "", 10)
		if err != nil || len(page.Items) != c.want {
			t.Errorf("%+v: %d records, %v", c.who, len(page.Items), err)
		}
	}
	l.Usage.SameNames = true
	if page, err := l.Usage.Records(t.Context(), eve, fleet.UsageQuery{To: "2026-10"}, "", 10); err != nil ||
		len(page.Items) != 2 {
		t.Errorf("where accounts are users: %+v, %v", page.Items, err)
	}
	for _, who := range []farm.Identity{bounded, of, {}} {
		if _, err := l.Usage.Sum(t.Context(), who, fleet.UsageQuery{}); code(err) != farm.CodeNoRole {
			t.Errorf("%+v: %v", who, err)
		}
	}
}

// TestOldUsage: persons leave records, and records leave, when the site says so.
func TestOldUsage(t *testing.T) {
	l, of, record := usageLab(t)
	l.takes(of, 1, 0, record(1))
	l.Usage.Mask, l.Usage.Keep = 30*24*time.Hour, 60*24*time.Hour
	records := func() []api.Usage {
		t.Helper()
		if err := l.Usage.Prune(t.Context(), l.epoch()); err != nil {
			t.Fatal(err)
		}
		page, err := l.Usage.Records(t.Context(), site, fleet.UsageQuery{To: "2026-10"}, "", 10)
		if err != nil {
			t.Fatal(err)
		}
		return page.Items
	}
	l.now = time.Date(2026, 11, 10, 0, 0, 0, 0, time.UTC)
	if all := records(); len(all) != 1 || all[0].User != "ann" {
		t.Errorf("%+v", all)
	}
	l.pass(20 * 24 * time.Hour)
	if all := records(); len(all) != 1 || all[0].User != "withheld" || *all[0].CPU != 7200 {
		t.Errorf("%+v", all)
	}
	l.takes(of, 0, 0, record(1)) // brought again, it stays masked
	if all := records(); len(all) != 1 || all[0].User != "withheld" {
		t.Errorf("%+v", all)
	}
	l.pass(30 * 24 * time.Hour)
	if all := records(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	l.takes(of, 0, 0, record(1)) // brought once more, it does not come back
}

// TestUsageOfLiars: what a guest says of itself takes nothing of its record, no record is of the future, and no host
// says whose project a job's is.
func TestUsageOfLiars(t *testing.T) {
	l, of, record := usageLab(t)
	l.now = time.Date(2026, 10, 21, 0, 0, 0, 0, time.UTC)
	guest, early, other := record(1), record(2), record(3)
	less := -1e9
	guest.JobCPU = &less
	early.End = early.End.AddDate(20, 0, 0)
	other.Project, other.Account = "alice", ""
	l.takes(of, 2, 0, guest, early, other)
	page, err := l.Usage.Records(t.Context(), site, fleet.UsageQuery{From: "2026-10", To: "2026-10"}, "", 10)
	if err != nil || len(page.Items) != 2 {
		t.Fatalf("%+v, %v", page.Items, err)
	}
	if u := page.Items[0]; u.JobCPU != nil || *u.CPU != 7200 {
		t.Errorf("%+v", u)
	}
	if u := page.Items[1]; u.Project != "" {
		t.Errorf("it is of project %s", u.Project)
	}
}

// TestWhoseUsage: whose a cloud VM is the server knows, and no host says another thing of it.
func TestWhoseUsage(t *testing.T) {
	l, of, record := usageLab(t)
	now := l.clock()
	l.now = record(1).Start
	vm := l.create(ann, CreateVM{Project: "alice", Name: "web", Image: "micro", Shape: "small"})[0]
	l.put(vm.VM, farm.Host{ID: of.Host, Cell: "east"})
	l.now = now
	said := record(1)
	said.Kind, said.VM, said.User, said.Project, said.Account = api.UsageVM, vm.ID, "eve", "atlas", "atlas-acc"
	said.Cores, said.CPU = 2, new(3600.0)
	l.takes(of, 1, 0, said)
	page, err := l.Usage.Records(t.Context(), site, fleet.UsageQuery{From: "2026-10", To: "2026-10"}, "", 10)
	if err != nil || len(page.Items) != 1 || page.Items[0].User != "ann" || page.Items[0].Project != "alice" ||
		page.Items[0].Account != "" {
		t.Errorf("%+v, %v", page.Items, err)
	}
}
