package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// outside are the words for which records count for nobody, by the last digit of their IDs.
func (l *lab) outside(who farm.Identity, q fleet.OutsideQuery) string {
	l.t.Helper()
	var all []string
	for after := ""; ; {
		page, err := l.Usage.Outside(l.t.Context(), who, q, after, 2)
		if err != nil {
			return string(code(err))
		}
		for _, u := range page.Items {
			word, text, _ := strings.Cut(u.Outside, ":")
			if text == "" && word != "withdrawn" {
				l.t.Errorf("%s without a sentence", word)
			}
			all = append(all, u.ID[len(u.ID)-1:]+" "+word)
		}
		if after = page.Next; after == "" {
			return strings.Join(all, ", ")
		}
	}
}

// later is a record of as much later.
func later(u api.Usage, d time.Duration) api.Usage {
	u.Start, u.End = u.Start.Add(d), u.End.Add(d)
	return u
}

// charged is what a month's records add up to, in core hours by project.
func (l *lab) charged(month string) map[string]float64 {
	l.t.Helper()
	out, err := l.Usage.Sum(l.t.Context(), site, fleet.UsageQuery{From: month, To: month})
	if err != nil {
		l.t.Fatal(err)
	}
	sums := map[string]float64{}
	for _, line := range out.Lines {
		sums[line.Key] = line.CoreHours
	}
	return sums
}

// TestOutside: what a host cannot have run is kept, is seen, and counts for nobody.
func TestOutside(t *testing.T) {
	l, of, record := usageLab(t)
	with := func(id byte, change func(u *api.Usage)) api.Usage {
		u := record(id)
		change(&u)
		return u
	}
	bad := []api.Usage{
		with(1, func(u *api.Usage) { u.Cores = 33 }),
		with(2, func(u *api.Usage) { u.Start, u.Wall = u.End, 50*365*86400 }),
		with(3, func(u *api.Usage) { u.End = l.now.Add(2 * time.Hour) }),
		with(4, func(u *api.Usage) { u.Start = time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC) }),
		with(5, func(u *api.Usage) { u.CPU = new(32.0*3700 - 1); u.Cores = 32; u.Wall = 3600 }),
		with(6, func(u *api.Usage) { u.Kind, u.VM, u.Project = api.UsageVM, "a-vm-that-nobody-has", "atlas" }),
		with(7, func(u *api.Usage) { u.Kind, u.VM, u.Cores = api.UsageVM, evesVM, 9 }),
	}
	out, err := l.Usage.Take(t.Context(), of, fleet.UsageBatch{Records: bad})
	if err != nil || out.New != 0 || out.Refused != 0 || out.Outside != len(bad) {
		t.Errorf("%+v, %v", out, err)
	}
	const want = "1 cores, 2 time, 3 future, 4 before-joining, 5 cpu, 6 place, 7 vm-size"
	if got := l.outside(site, fleet.OutsideQuery{}); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := l.outside(site, fleet.OutsideQuery{Host: "wn-1", Why: "place"}); got != "6 place" {
		t.Error(got)
	}
	if got := l.outside(site, fleet.OutsideQuery{Host: "wn-2"}); got != "" {
		t.Error(got)
	}
	for _, month := range []string{"2026-09", "2026-10", "2026-11"} {
		if sums := l.charged(month); len(sums) > 0 {
			t.Errorf("%s: %v", month, sums)
		}
	}
	l.takes(of, 0, 0, bad...) // brought again, they stay
	if got := l.outside(site, fleet.OutsideQuery{}); got != want {
		t.Errorf("brought again: %q", got)
	}
	l.takes(of, 1, 0, record(8)) // and keep no other one waiting
}

// TestWhoSeesOutside: who may read all, or the cell; nobody because their name is in a record.
func TestWhoSeesOutside(t *testing.T) {
	l, of, record := usageLab(t)
	u := record(1)
	u.Cores = 33
	l.takes(of, 0, 0, u)
	l.update(func(tx *store.Tx) error {
		return errors.Join(tx.PutGrant(farm.Grant{User: "cell", Role: farm.RoleReader, Cell: "east"}),
			tx.PutGrant(farm.Grant{User: "west", Role: farm.RoleReader, Cell: "west"}))
	})
	l.Usage.SameNames = true
	for want, all := range map[string][]farm.Identity{"1 cores": {site, root, {User: "cell"}}, "": {{User: "west"}},
		string(farm.CodeNoRole): {ann, otto, eve, of}} {
		for _, who := range all {
			if got := l.outside(who, fleet.OutsideQuery{}); got != want {
				t.Errorf("%+v: %q, want %q", who, got, want)
			}
		}
	}
}

// TestFullHours: a host charges a few times what it has, over all that it brings, and no more.
func TestFullHours(t *testing.T) {
	l, of, record := usageLab(t)
	for i := range byte(50) {
		u := record(i)
		if u.Cores = 32; i%2 == 0 {
			u.Start = u.End.Add(-time.Minute) // its wall time is as long
		}
		if _, err := l.Usage.Take(t.Context(), of, fleet.UsageBatch{Records: []api.Usage{u}}); err != nil {
			t.Fatal(err)
		}
	}
	if sums := l.charged("2026-10"); sums["atlas"] != 4*32 {
		t.Errorf("%v", sums)
	}
}

// TestFullVM: records of one VM add up to a few times its CPUs, whatever its host has, and however they are brought.
func TestFullVM(t *testing.T) {
	l, of, record := usageLab(t)
	first, job := record(20), record(21)
	first.Kind, first.VM = api.UsageVM, evesVM
	job.VM = evesVM // which says nothing
	var batch []api.Usage
	for i := range byte(10) {
		u := record(i)
		u.Kind, u.VM, u.Account, u.Cores, u.CPU = api.UsageVM, evesVM, "", 8, new(60.0)
		u.Start, u.End = u.Start.AddDate(0, 0, -7), u.End.AddDate(0, 0, -7)
		batch = append(batch, u)
	}
	out, err := l.Usage.Take(t.Context(), of, fleet.UsageBatch{Records: append([]api.Usage{first, job}, batch[:3]...)})
	if err != nil || out.New != 5 {
		t.Fatalf("%+v, %v", out, err)
	}
	for _, u := range batch[3:] {
		if _, err := l.Usage.Take(t.Context(), of, fleet.UsageBatch{Records: []api.Usage{u}}); err != nil {
			t.Fatal(err)
		}
	}
	page, err := l.Usage.Outside(t.Context(), site, fleet.OutsideQuery{Why: "vm-full"}, "", 100)
	if err != nil || len(page.Items) != 6 {
		t.Errorf("%d records of a VM are too much, %v", len(page.Items), err)
	}
}

// TestUsageOfPlaces: a VM is charged by the hosts that it was on, for when it was there, and to whose it was, also when
// it is gone and its host was away.
func TestUsageOfPlaces(t *testing.T) {
	l, of, record := usageLab(t)
	l.now = record(0).Start
	other := l.machine("wn-2", "east")
	vm := l.running(ann, CreateVM{Project: "alice", Name: "web", Image: "micro", Shape: "small"}, farm.Host{ID: of.Host,
		Cell: "east"})
	l.pass(24 * time.Hour)
	l.put(vm.VM, other)
	l.pass(24 * time.Hour)
	l.update(func(tx *store.Tx) error { return tx.DeleteVM(vm.ID) })
	l.pass(24 * time.Hour)
	on := func(id byte, day int) api.Usage {
		u := record(id)
		u.Kind, u.VM, u.User, u.Project, u.Cores, u.CPU = api.UsageVM, vm.ID, "eve", "atlas", 2, new(60.0)
		u.Start, u.End = u.Start.AddDate(0, 0, day), u.End.AddDate(0, 0, day)
		return u
	}
	wn2 := farm.Identity{Host: other.ID, Means: "certificate"}
	l.takes(of, 1, 0, on(1, 0), later(on(2, 1), 2*time.Hour))
	l.takes(wn2, 1, 0, on(3, 0), later(on(4, 1), 2*time.Hour), later(on(5, 2), 2*time.Hour))
	if got, want := l.outside(site, fleet.OutsideQuery{}), "2 place, 3 place, 5 place"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if sums := l.charged("2026-10"); len(sums) != 1 || sums["alice"] != 4 {
		t.Errorf("%v", sums)
	}
}

// TestOutsideIsBounded: a host that brings such records without end does not fill the database.
func TestOutsideIsBounded(t *testing.T) {
	l, of, record := usageLab(t)
	took, refused := 0, 0
	for n := range 21 {
		var all []api.Usage
		for i := range 500 {
			u := record(1)
			u.ID, u.Cores = fmt.Sprintf("00000000-0000-4000-8000-%012d", n*500+i), 33
			all = append(all, u)
		}
		out, err := l.Usage.Take(t.Context(), of, fleet.UsageBatch{Records: all})
		if err != nil {
			t.Fatal(err)
		}
		took, refused = took+out.Outside, refused+out.Refused
	}
	if took != 10_000 || refused != 500 {
		t.Errorf("%d are kept, and %d refused", took, refused)
	}
}

// TestWithdraw: an administrator takes a host's records back, of a period and once; nobody else does, and the host does
// not bring them again.
func TestWithdraw(t *testing.T) {
	l, of, record := usageLab(t)
	l.takes(of, 3, 0, record(1), record(2), later(record(3), 48*time.Hour))
	day := time.Date(2026, 10, 20, 0, 0, 0, 0, time.UTC)
	r := fleet.UsageWithdrawal{Host: "wn-1", From: day, To: day.AddDate(0, 0, 1)}
	if _, err := l.Usage.CloseMonth(t.Context(), site, "2026-10"); err != nil {
		t.Fatal(err)
	}
	l.update(func(tx *store.Tx) error {
		return tx.PutGrant(farm.Grant{User: "cell", Role: farm.RoleAdmin, Cell: "east"})
	})
	for _, who := range []farm.Identity{otto, ann, of, {User: "cell"}} {
		for _, dry := range []bool{false, true} {
			r.DryRun = dry
			if _, err := l.Usage.Withdraw(t.Context(), who, r); code(err) != farm.CodeNoRole {
				t.Errorf("%+v: %v", who, err)
			}
		}
	}
	for want, bad := range map[farm.Code]fleet.UsageWithdrawal{
		"bad-period": {Host: "wn-1", From: day, To: day}, "no-host": {Host: "wn-9", From: day, To: r.To}} {
		if _, err := l.Usage.Withdraw(t.Context(), site, bad); code(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	withdraw := func(records int, hours float64) {
		t.Helper()
		out, err := l.Usage.Withdraw(t.Context(), site, r)
		if err != nil || out.Records != records || out.Closed != records || out.CoreHours != hours {
			t.Errorf("%+v, %v", out, err)
		}
	}
	charged := func(want float64) {
		t.Helper()
		if sums := l.charged("2026-10"); sums["atlas"] != want {
			t.Errorf("%v, want %v", sums, want)
		}
	}
	withdraw(2, 16) // a dry run
	charged(24)
	r.DryRun = false
	withdraw(2, 16)
	charged(8)
	withdraw(0, 0)
	l.takes(of, 0, 0, record(1), record(2), later(record(3), 48*time.Hour))
	charged(8)
	if got := l.outside(site, fleet.OutsideQuery{}); got != "1 withdrawn, 2 withdrawn" {
		t.Error(got)
	}
	l.view(func(tx *store.Tx) error {
		entries, err := tx.Entries("", "", 0, 100)
		i := slices.IndexFunc(entries, func(e farm.Entry) bool { return e.Action == "usage.withdraw" && e.Outcome == "done" })
		if i < 0 || entries[i].Who != "site" || entries[i].Target != "host wn-1" ||
			!strings.HasPrefix(entries[i].Reason, "2 records of 16.00 core hours") {
			t.Errorf("%+v", entries)
		}
		return err
	})
	r.From, r.To, r.Came = l.now.Add(-time.Minute), l.now.Add(time.Minute), true
	withdraw(1, 8) // by when it came
	charged(0)
	l.update(func(tx *store.Tx) error { return tx.DeleteHost(of.Host) })
	withdraw(0, 0) // of a host that is forgotten
}

// TestUsageBeforeReport: records wait until the server knows what their host has.
func TestUsageBeforeReport(t *testing.T) {
	l, _, record := usageLab(t)
	l.update(func(tx *store.Tx) error { return tx.InsertHost(farm.Host{ID: "new", Name: "new", Cell: "east"}) })
	if _, err := l.Usage.Take(t.Context(), farm.Identity{Host: "new"},
		fleet.UsageBatch{Records: []api.Usage{record(1)}}); code(err) != "usage-early" {
		t.Error(err)
	}
}

// TestOldPlaces: what is known of stays and hours goes with the records.
func TestOldPlaces(t *testing.T) {
	l, of, record := usageLab(t)
	l.takes(of, 1, 0, record(1))
	l.update(func(tx *store.Tx) error { return tx.DeleteVM(evesVM) })
	l.Usage.Keep = 30 * 24 * time.Hour
	known := func(want int) {
		t.Helper()
		if err := l.Usage.Prune(t.Context(), l.epoch()); err != nil {
			t.Fatal(err)
		}
		l.view(func(tx *store.Tx) error {
			places, err := tx.Places(evesVM, of.Host)
			days, other := tx.UsageHours("wn-1", "2026-10-01", "2026-10-31")
			if len(places) != want || len(days) != want {
				t.Errorf("%v, %v", places, days)
			}
			return errors.Join(err, other)
		})
	}
	l.now = record(1).End
	known(1)
	l.now = time.Date(2026, 12, 31, 0, 0, 0, 0, time.UTC)
	known(0)
}
