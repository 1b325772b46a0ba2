package storetest

import (
	"errors"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

func aJob(id string, minutes int) store.JobRow {
	return store.JobRow{ID: id, Kind: "job", State: "running", Owner: "ann", Project: "p",
		Asked: noon.Add(time.Duration(minutes) * time.Minute), Body: []byte(`{"id":"` + id + `"}`)}
}

// jobs: those of a host are what it says last; lists are of what is chosen and may be seen, the newest first, and
// pages follow each other.
func jobs(s *suite) {
	db := s.new()
	bob := aJob("2", 2)
	bob.Owner, bob.Project, bob.State = "bob", "", "waiting"
	s.update(db, func(tx *store.Tx) error {
		return errors.Join(tx.InsertHost(farm.Host{ID: "h1", Name: "wn-1", Cell: "c"}),
			tx.InsertHost(farm.Host{ID: "h2", Name: "wn-2", Cell: "d"}),
			tx.SetHostJobs("h1", []store.JobRow{aJob("1", 1), bob, aJob("3", 3)}),
			tx.SetHostJobs("h2", []store.JobRow{aJob("1", 9)}), tx.SetHostJobs("h3", []store.JobRow{aJob("9", 9)}))
	})
	ids := func(all []store.JobRow) string {
		var texts []string
		for _, j := range all {
			texts = append(texts, j.HostName+"/"+j.ID)
		}
		return strings.Join(texts, " ")
	}
	sees := store.UsageSight{All: true}
	s.view(db, func(tx *store.Tx) error {
		for _, c := range []struct {
			want string
			f    store.JobFilter
		}{
			{"wn-2/1 wn-1/3 wn-1/2 wn-1/1", store.JobFilter{Sees: sees}},
			{"", store.JobFilter{}},
			{"wn-1/2", store.JobFilter{Owner: "bob", Sees: sees}},
			{"wn-1/2", store.JobFilter{State: "waiting", Sees: sees}},
			{"wn-2/1", store.JobFilter{Host: "wn-2", Sees: sees}},
			{"wn-1/3 wn-1/2 wn-1/1", store.JobFilter{Cell: "c", Sees: sees}},
			{"wn-2/1 wn-1/3 wn-1/1", store.JobFilter{Sees: store.UsageSight{Projects: []string{"p"}}}},
			{"wn-2/1 wn-1/2", store.JobFilter{Sees: store.UsageSight{Owner: "bob", Cells: []string{"d"}}}},
			{"", store.JobFilter{Sees: store.UsageSight{Owner: "bob", OwnKind: "vm"}}},
			{"wn-1/1", store.JobFilter{Sees: sees, Before: noon.Add(2 * time.Minute), BeforeID: "2"}},
			{"wn-1/2 wn-1/1", store.JobFilter{Sees: sees, Before: noon.Add(2 * time.Minute), BeforeID: "3"}},
		} {
			c.f.Limit = 10
			all, err := tx.Jobs(c.f)
			same(s, "jobs", c.want, err, ids(all))
		}
		all, err := tx.Jobs(store.JobFilter{Sees: sees, Limit: 2})
		same(s, "a page", "wn-2/1 wn-1/3", err, ids(all))
		all, err = tx.JobsCalled("1", sees)
		same(s, "of an ID", "wn-1/1 wn-2/1", err, ids(all))
		want := aJob("1", 1)
		want.Host, want.HostName, want.Cell = "h1", "wn-1", "c"
		same(s, "a job", want, err, all[0])
		return nil
	})
	runs := aJob("2", 2)
	s.update(db, func(tx *store.Tx) error {
		return errors.Join(tx.SetHostJobs("h1", []store.JobRow{runs, aJob("3", 3)}), tx.EndHostJob("h1", "3"),
			tx.EndHostJob("h1", "7"), tx.DeleteHost("h2"))
	})
	s.view(db, func(tx *store.Tx) error {
		all, err := tx.Jobs(store.JobFilter{Sees: sees, Limit: 9})
		same(s, "what is left", "wn-1/2", err, ids(all))
		return nil
	})
	usageOfJobs(s)
}

func usageOfJobs(s *suite) {
	db := s.new()
	s.update(db, func(tx *store.Tx) error {
		var all []error
		for i, id := range []string{"1", "2", "3", "4"} {
			r := aUsage(id)
			r.Ended, r.Job, r.Kind = noon.Add(time.Duration(i)*time.Hour), "j"+id, []string{"job", "worker", "vm", "job"}[i]
			_, err := tx.PutUsage(r)
			all = append(all, err)
		}
		return errors.Join(all...)
	})
	s.view(db, func(tx *store.Tx) error {
		for id, want := range map[string]string{"4": `{"id":"4"}`, "j4": `{"id":"4"}`, "3": "", "": ""} {
			bodies, err := tx.UsageOfJob(id, store.UsageSight{All: true})
			same(s, "the records of job "+id, want, err, joined(bodies))
		}
		return nil
	})
}

func joined(bodies [][]byte) string {
	var texts []string
	for _, b := range bodies {
		texts = append(texts, string(b))
	}
	return strings.Join(texts, " ")
}

// findings: changes are there once, from a time on; a host that never rests has its newest ones; they go with their
// host, and when they are old.
func findings(s *suite) {
	db := s.new()
	change := func(host, rule string, minutes int, came bool) store.FindingChange {
		return store.FindingChange{Host: host, At: noon.Add(time.Duration(minutes) * time.Minute), Rule: rule,
			Came: came}
	}
	first, late := change("h1", "", 0, true), change("h2", "swap", 7, false)
	late.Updated = true
	s.update(db, func(tx *store.Tx) error {
		return errors.Join(tx.InsertHost(farm.Host{ID: "h2", Name: "wn-2"}),
			tx.AddFindingChanges([]store.FindingChange{first}), tx.AddFindingChanges(nil),
			tx.AddFindingChanges([]store.FindingChange{late, change("h2", "ksm", 7, true), late}))
	})
	since := func(minutes, limit int, want ...store.FindingChange) {
		s.view(db, func(tx *store.Tx) error {
			all, err := tx.FindingChanges(noon.Add(time.Duration(minutes)*time.Minute), limit)
			same(s, "changes", want, err, all)
			return nil
		})
	}
	since(0, 9, first, change("h2", "ksm", 7, true), late)
	since(1, 9, change("h2", "ksm", 7, true), late)
	s.update(db, func(tx *store.Tx) error {
		var all []store.FindingChange
		for n := range 600 {
			all = append(all, change("h3", "ksm", 10+n, n%2 == 0))
		}
		return errors.Join(tx.DeleteHost("h2"), tx.AddFindingChanges(all))
	})
	since(608, 9, change("h3", "ksm", 608, true), change("h3", "ksm", 609, false))
	s.view(db, func(tx *store.Tx) error {
		all, err := tx.FindingChanges(noon, 1000)
		same(s, "the newest", 501, err, len(all))
		return nil
	})
	s.update(db, func(tx *store.Tx) error {
		again, err := tx.PruneFindings(noon.Add(608 * time.Minute))
		same(s, "more to prune", false, err, again)
		return nil
	})
	since(0, 1, change("h3", "ksm", 609, false))
}
