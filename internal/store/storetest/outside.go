package storetest

import (
	"errors"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/store"
)

// outside: a record that counts for nobody is in no sum and no list but its own, and is known by its ID.
func outside(s *suite) {
	db := s.new()
	s.update(db, func(tx *store.Tx) error {
		for _, id := range []string{"1", "2", "3", "4", "5"} {
			r := aUsage(id)
			r.Batch, r.Job, r.Came = "slurm/17", "j", noon.Add(time.Hour)
			switch id {
			case "2":
				r.Outside = "cores"
			case "3":
				r.Outside, r.Host, r.Cell, r.Ended = "place", "other", "d", noon.Add(time.Hour)
			case "4":
				r.Kind = "metal"
			case "5":
				r.Came = r.Came.Add(time.Millisecond)
			}
			if _, err := tx.PutUsage(r); err != nil {
				return err
			}
		}
		return nil
	})
	both := store.UsageFilter{From: "2026-10", To: "2026-11", Sees: store.UsageSight{All: true}}
	charged := func(tx *store.Tx, want int) {
		s.Helper()
		sums, err := tx.UsageSums("month", both)
		same(s, "in sums", want, err, sums[0].Records)
		bodies, err := tx.Usage(both, "", 10)
		same(s, "in lists", want, err, len(bodies))
		bodies, err = tx.RecentUsage(store.UsageRecent{Kinds: []string{"job", "metal"}, Sees: both.Sees, Limit: 10})
		same(s, "among jobs", want, err, len(bodies))
		bodies, err = tx.UsageOfJob("j", both.Sees)
		same(s, "of a job", want, err, len(bodies))
		rows, err := tx.UsageOfBatch("c", "slurm/17")
		same(s, "of a batch job", want, err, len(rows))
	}
	listed := func(tx *store.Tx, f store.UsageOutside, want string) {
		s.Helper()
		f.Limit = max(f.Limit, 1)
		var ids []string
		for {
			rows, err := tx.UsageOutside(f)
			if err != nil {
				s.Fatal(err)
			}
			for _, r := range rows {
				f.After = strings.Trim(string(r.Body), `{"id:}`)
				ids = append(ids, f.After+" "+r.Why)
			}
			if len(rows) < f.Limit {
				break
			}
		}
		same(s, "outside", want, nil, strings.Join(ids, ", "))
	}
	s.view(db, func(tx *store.Tx) error {
		charged(tx, 3)
		listed(tx, store.UsageOutside{Sees: both.Sees}, "2 cores, 3 place")
		listed(tx, store.UsageOutside{Sees: both.Sees, Host: "other"}, "3 place")
		listed(tx, store.UsageOutside{Sees: both.Sees, Why: "cores"}, "2 cores")
		listed(tx, store.UsageOutside{Sees: both.Sees, From: noon.Add(1)}, "3 place")
		listed(tx, store.UsageOutside{Sees: both.Sees, To: noon.Add(1)}, "2 cores")
		listed(tx, store.UsageOutside{Sees: store.UsageSight{Cells: []string{"d"}}}, "3 place")
		listed(tx, store.UsageOutside{}, "")
		counts, err := tx.UsageOutsideCounts()
		same(s, "counts", []store.UsageOutsideCount{{Host: "h", Why: "cores", Records: 1},
			{Host: "other", Why: "place", Records: 1}}, err, counts)
		for p, want := range map[store.HostPeriod]int{
			{Host: "h", From: noon, To: noon.Add(1)}:                                                  2,
			{Host: "h", From: noon.Add(-1), To: noon}:                                                 0,
			{Host: "other", From: noon, To: noon.Add(2 * time.Hour)}:                                  0,
			{Host: "h", From: noon, To: noon.Add(time.Hour), Came: true}:                              0,
			{Host: "h", From: noon.Add(time.Hour), To: noon.Add(time.Hour + time.Second), Came: true}: 2} {
			sum, err := tx.SumPeriod(p, "2026-09")
			same(s, "of a host", store.PeriodSum{Records: want, CoreTime: float64(want) * 8 * 3600}, err, sum)
			sum, err = tx.SumPeriod(p, "2026-10")
			same(s, "of a host in closed months", want, err, sum.Closed)
		}
		for id, want := range map[string]bool{"1": true, "2": true, "9": false} {
			has, err := tx.HasUsage(id)
			same(s, "has "+id, want, err, has)
		}
		return nil
	})
	only := store.HostPeriod{Host: "h", From: noon.Add(time.Hour), To: noon.Add(time.Hour + 1), Came: true}
	s.update(db, func(tx *store.Tx) error { return tx.Withdraw(only, "withdrawn") })
	s.update(db, func(tx *store.Tx) error {
		fresh, err := tx.PutUsage(aUsage("1"))
		same(s, "is new", false, err, fresh)
		charged(tx, 2)
		listed(tx, store.UsageOutside{Sees: both.Sees}, "1 withdrawn, 2 cores, 3 place")
		n, err := tx.CountOutside("h", "withdrawn")
		same(s, "of the host for other reasons", 1, err, n)
		again, err := tx.PruneUsage(noon.Add(1))
		same(s, "more to prune", false, err, again)
		listed(tx, store.UsageOutside{Sees: both.Sees}, "3 place")
		return nil
	})
}

// hours: the sums of a host and a day.
func hours(s *suite) {
	db := s.new()
	one, two := store.Hours{0: 1.5, 23: 7}, store.Hours{12: 3600}
	s.update(db, func(tx *store.Tx) error {
		return errors.Join(tx.SetUsageHours("h", "2026-10-19", two), tx.SetUsageHours("h", "2026-10-20", two),
			tx.SetUsageHours("h", "2026-10-20", one), tx.SetUsageHours("h", "2026-10-21", two),
			tx.SetUsageHours("h", "2026-10-22", two), tx.SetUsageHours("i", "2026-10-20", two))
	})
	s.update(db, func(tx *store.Tx) error {
		days, err := tx.UsageHours("h", "2026-10-20", "2026-10-21")
		same(s, "days", map[string]*store.Hours{"2026-10-20": &one, "2026-10-21": &two}, err, days)
		again, err := tx.PruneUsageHours("2026-10-21")
		same(s, "more to prune", false, err, again)
		days, err = tx.UsageHours("h", "2026-10-01", "2026-10-31")
		same(s, "days that stay", 2, err, len(days))
		return nil
	})
}
