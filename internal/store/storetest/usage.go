package storetest

import (
	"errors"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/store"
)

func aUsage(id string) store.UsageRow {
	return store.UsageRow{ID: id, Month: "2026-10", Ended: noon, Kind: "job", Owner: "ann", Project: "p", Account: "a",
		VO: "v", Cell: "c", Host: "h", Hardware: "amd", Cores: 8, Wall: time.Hour, CPU: new(2 * time.Hour),
		JobCPU: time.Second, Body: []byte(`{"id":"` + id + `"}`)}
}

// recentUsage: the newest first, each once, of what is chosen and may be seen.
func recentUsage(s *suite, tx *store.Tx) error {
	all := store.UsageSight{All: true}
	jobs := []string{"worker", "job"}
	for _, c := range []struct {
		want string
		f    store.UsageRecent
	}{
		{"3 2 1", store.UsageRecent{Since: noon, Kinds: jobs, Sees: all, Limit: 10}},
		{"3 2", store.UsageRecent{Since: noon, Kinds: jobs, Sees: all, Limit: 2}},
		{"1", store.UsageRecent{Kinds: jobs, Sees: all, Before: noon, BeforeID: "2", Limit: 10}},
		{"3 2 1", store.UsageRecent{Kinds: jobs, Sees: all, Before: noon.Add(1), BeforeID: "0", Limit: 10}},
		{"", store.UsageRecent{Kinds: jobs, Sees: all, Before: noon.Add(-1), BeforeID: "9", Limit: 10}},
		{"", store.UsageRecent{Since: noon.Add(1), Kinds: jobs, Sees: all, Limit: 10}},
		{"", store.UsageRecent{Kinds: []string{"vm"}, Sees: all, Limit: 10}},
		{"", store.UsageRecent{Kinds: jobs, Limit: 10}},
		{"3", store.UsageRecent{Kinds: jobs, Owner: "bob", Host: "h", Sees: all, Limit: 10}},
		{"2 1", store.UsageRecent{Kinds: jobs, Sees: store.UsageSight{Cells: []string{"c"}}, Limit: 10}},
		{"", store.UsageRecent{Kinds: jobs, Cell: "d", Sees: store.UsageSight{Cells: []string{"c"}}, Limit: 10}},
		{"", store.UsageRecent{Kinds: jobs, Sees: store.UsageSight{Owner: "ann", OwnKind: "vm"}, Limit: 10}},
	} {
		bodies, err := tx.RecentUsage(c.f)
		if err != nil {
			return err
		}
		var ids []string
		for _, b := range bodies {
			ids = append(ids, strings.Trim(string(b), `{"id:}`))
		}
		same(s, "recent ones", c.want, nil, strings.Join(ids, " "))
	}
	return nil
}

// usage: a record is there once; sums and lists are of what is chosen and may be seen; old ones go.
func usage(s *suite) {
	db := s.new()
	late := aUsage("3")
	late.Month, late.Late, late.Owner, late.Project, late.Cell, late.Cores = "2026-11", true, "bob", "q", "d", 4
	late.Tuning, late.CPU = "0123456789ab", nil
	s.update(db, func(tx *store.Tx) error {
		for _, r := range []store.UsageRow{aUsage("1"), aUsage("2"), aUsage("1"), late} {
			fresh, err := tx.PutUsage(r)
			if err != nil {
				return err
			}
			same(s, "is new", true, nil, fresh || r.ID == "1")
		}
		return nil
	})
	both := store.UsageFilter{From: "2026-10", To: "2026-11", Sees: store.UsageSight{All: true}}
	s.view(db, func(tx *store.Tx) error {
		sums, err := tx.UsageSums("user", both)
		same(s, "sums", []store.UsageSum{
			{Key: "ann", Hardware: "amd", Cores: 8, Records: 2, Wall: 2 * 3600, CoreTime: 16 * 3600,
				CPU: 4 * 3600, JobCPU: 2},
			{Key: "bob", Hardware: "amd", Tuning: "0123456789ab", Cores: 4, Records: 1, Late: 1, Wall: 3600,
				CoreTime: 4 * 3600, JobCPU: 1, CPUUnknown: 1, CoreTimeUnknown: 4 * 3600}}, err, sums)
		for _, by := range store.UsageKeys() {
			if _, err := tx.UsageSums(by, both); err != nil {
				s.Error(by, err)
			}
		}
		if _, err := tx.UsageSums("body", both); err == nil {
			s.Error("added up by a column that is none")
		}
		for want, f := range map[int]store.UsageFilter{
			0: {From: "2026-10", To: "2026-11"},
			1: {From: "2026-11", To: "2026-11", Sees: both.Sees},
			2: {From: "2026-10", To: "2026-11", Sees: store.UsageSight{Projects: []string{"p", "x"}}},
			3: {From: "2026-10", To: "2026-11", Sees: store.UsageSight{Owner: "ann", Cells: []string{"d"}}}} {
			bodies, err := tx.Usage(f, "", 10)
			same(s, "records", want, err, len(bodies))
		}
		bodies, err := tx.Usage(both, "1", 1)
		same(s, "a page", `{"id":"2"}`, err, string(bodies[0]))
		return recentUsage(s, tx)
	})
	ofBatch := func(tx *store.Tx, want ...string) {
		found, err := tx.UsageOfBatch("c", "slurm/17")
		ids := []string{}
		for _, r := range found {
			ids = append(ids, r.ID+" "+r.Kind+" "+r.Month+" "+r.Host)
		}
		same(s, "of a batch job", strings.Join(want, ", "), err, strings.Join(ids, ", "))
	}
	s.update(db, func(tx *store.Tx) error {
		for id, cell := range map[string]string{"4": "c", "5": "c", "6": "d"} {
			r := aUsage(id)
			r.Batch, r.Cell = "slurm/17", cell
			if _, err := tx.PutUsage(r); err != nil {
				return err
			}
		}
		ofBatch(tx, "4 job 2026-10 h", "5 job 2026-10 h")
		if err := tx.MaskUsage("5", "withheld", []byte(`{}`)); err != nil {
			return err
		}
		ofBatch(tx, "4 job 2026-10 h")
		return errors.Join(tx.DeleteUsage("4"), tx.DeleteUsage("5"), tx.DeleteUsage("6"))
	})
	s.view(db, func(tx *store.Tx) error { ofBatch(tx); return nil })
	s.update(db, func(tx *store.Tx) error {
		bodies, err := tx.UsageToMask(noon.Add(time.Second), 2)
		same(s, "to be masked", 2, err, len(bodies))
		if err := tx.MaskUsage("1", "withheld", []byte(`{}`)); err != nil {
			return err
		}
		bodies, err = tx.UsageToMask(noon.Add(time.Second), 10)
		same(s, "to be masked then", 2, err, len(bodies))
		again, err := tx.PruneUsage(noon)
		same(s, "more to prune", false, err, again)
		return nil
	})
	s.update(db, func(tx *store.Tx) error {
		_, err := tx.PruneUsage(noon.Add(time.Second))
		return err
	})
	s.view(db, func(tx *store.Tx) error {
		sums, err := tx.UsageSums("user", both)
		same(s, "what stays", 0, err, len(sums))
		return nil
	})
}
