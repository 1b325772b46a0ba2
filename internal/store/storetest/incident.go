package storetest

import (
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

func anIncident() farm.Incident {
	return farm.Incident{Title: "slow disks", Severity: farm.SeverityMajor, Opener: "ann", Opened: noon,
		Began: noon.Add(-time.Hour), Concerns: []farm.Concern{
			{Kind: farm.ConcernHost, Name: "wn-1", ID: "h1", Cell: "c"},
			{Kind: farm.ConcernVM, Name: "p/web", ID: "v1", Project: "p", Cell: "c"},
			{Kind: farm.ConcernFinding, Name: "host-swap-in-use"}},
		Links: []int64{7}, Entries: 1, Touched: noon}
}

func anEntry(n int) farm.IncidentEntry {
	return farm.IncidentEntry{Number: n, Time: noon, Who: "ann", Kind: farm.EntryOpened, Text: "since the reboot\nof noon",
		Severity: farm.SeverityMajor, Concerns: anIncident().Concerns[:1], Links: []int64{7},
		Ended: noon.Add(time.Hour)}
}

// incidents: each has the next ID, is found by what it concerns and by where that is, and keeps each entry as it was
// written.
func incidents(s *suite) {
	db, first := s.new(), anIncident()
	second := farm.Incident{Title: "second", Opener: "bob", Touched: noon.Add(time.Hour), Closed: true}
	third := farm.Incident{Title: "third", Opener: "ann", Touched: noon.Add(2 * time.Hour),
		Concerns: []farm.Concern{{Kind: farm.ConcernProject, Name: "p", Project: "p"}}}
	for n, i := range []*farm.Incident{&first, &second, &third} {
		i.Revision = s.update(db, func(tx *store.Tx) (err error) {
			i.ID, err = tx.InsertIncident(*i)
			same(s, "ID", int64(n+1), err, i.ID)
			return err
		})
	}
	chosen := func(what string, f store.IncidentFilter, want ...farm.Incident) {
		s.Helper()
		f.Limit = max(f.Limit, 2)
		s.view(db, func(tx *store.Tx) error {
			got, err := tx.Incidents(f)
			same(s, what, want, err, got)
			return nil
		})
	}
	having := func(words ...store.IncidentWord) store.IncidentFilter { return store.IncidentFilter{All: words} }
	host := store.IncidentWord{Kind: farm.ConcernHost, Word: "wn-1"}
	inP := store.IncidentWord{Kind: store.InProject, Word: "p"}
	chosen("the newest", store.IncidentFilter{}, third, second)
	chosen("behind them", store.IncidentFilter{Before: second.ID}, first)
	chosen("open", store.IncidentFilter{Open: true}, third, first)
	chosen("closed", store.IncidentFilter{Closed: true}, second)
	chosen("since", store.IncidentFilter{Since: second.Touched}, third, second)
	chosen("since later", store.IncidentFilter{Since: third.Touched.Add(1)})
	chosen("of a host", having(host), first)
	chosen("of its ID", having(store.IncidentWord{Kind: farm.ConcernHost, Word: "h1"}), first)
	chosen("of a VM of that ID", having(store.IncidentWord{Kind: farm.ConcernVM, Word: "h1"}))
	chosen("of a host and a finding",
		having(host, store.IncidentWord{Kind: farm.ConcernFinding, Word: "host-swap-in-use"}), first)
	chosen("of a host and another finding", having(host, store.IncidentWord{Kind: farm.ConcernFinding, Word: "x"}))
	chosen("in a project", store.IncidentFilter{Any: []store.IncidentWord{inP}}, third, first)
	chosen("in a cell or a project", store.IncidentFilter{
		Any: []store.IncidentWord{{Kind: store.InCell, Word: "c"}, {Kind: store.InProject}}}, first)
	chosen("in nothing", store.IncidentFilter{Any: []store.IncidentWord{}})
	s.view(db, func(tx *store.Tx) error {
		n, err := tx.CountIncidents("ann", "p", "q")
		same(s, "how many", store.IncidentCount{All: 3, Opener: 2, Projects: map[string]int{"p": 2, "q": 0}}, err, n)
		_, err = tx.Incident(4)
		s.fails("none", err, store.CodeAbsent)
		return nil
	})

	entries := []farm.IncidentEntry{anEntry(1), anEntry(2)}
	s.update(db, func(tx *store.Tx) error { return tx.AddIncidentEntry(first.ID, entries[0]) })
	s.fails("another in its place", s.in(db, func(tx *store.Tx) error {
		return tx.AddIncidentEntry(first.ID, farm.IncidentEntry{Number: 1, Text: "forged"})
	}), store.CodeTaken)
	first.Closed, first.Touched = true, noon.Add(3*time.Hour)
	first.Concerns = append(first.Concerns, farm.Concern{Kind: farm.ConcernCell, Name: "d", Cell: "d"})
	first.Revision = s.update(db, func(tx *store.Tx) error {
		if err := tx.AddIncidentEntry(first.ID, entries[1]); err != nil {
			return err
		}
		return tx.SetIncident(first)
	})
	chosen("closed now", store.IncidentFilter{Closed: true, Since: first.Touched}, first)
	chosen("in the cell that was added", store.IncidentFilter{Any: []store.IncidentWord{{Kind: store.InCell, Word: "d"}}},
		first)
	s.view(db, func(tx *store.Tx) error {
		got, err := tx.Incident(first.ID)
		same(s, "the incident", first, err, got)
		said, err := tx.IncidentEntries(first.ID)
		same(s, "its entries", entries, err, said)
		said, err = tx.IncidentEntries(second.ID)
		same(s, "another's entries", nil, err, said)
		return nil
	})
	s.fails("one that is not there",
		s.in(db, func(tx *store.Tx) error { return tx.SetIncident(farm.Incident{ID: 9}) }), store.CodeAbsent)
	changes, _, err := db.Changes(s.ctx, 0, 10)
	same(s, "the feed is silent", nil, err, changes)
}

// incidentsDropped: closed ones go when nothing was added for long, with all that belongs to them; an ID is never given
// twice.
func incidentsDropped(s *suite) {
	db := s.new()
	s.update(db, func(tx *store.Tx) error {
		for _, i := range []farm.Incident{{Closed: true}, {}, {Closed: true}, {Closed: true}} {
			i.Touched = noon
			i.Concerns = anIncident().Concerns
			id, err := tx.InsertIncident(i)
			if err == nil {
				err = tx.AddIncidentEntry(id, anEntry(1))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	s.update(db, func(tx *store.Tx) error {
		_, err := tx.PruneIncidents(noon)
		same(s, "all are young", 4, err, incidentIDs(s, tx)[0])
		again, err := tx.PruneIncidents(noon.Add(1))
		same(s, "again", false, err, again)
		same(s, "what stays", []int64{4, 2}, nil, incidentIDs(s, tx))
		said, err := tx.IncidentEntries(1)
		same(s, "entries of one that is gone", nil, err, said)
		id, err := tx.InsertIncident(farm.Incident{})
		same(s, "the next ID", 5, err, id)
		return err
	})
}

func incidentIDs(s *suite, tx *store.Tx) (ids []int64) {
	s.Helper()
	all, err := tx.Incidents(store.IncidentFilter{Limit: 10})
	for _, i := range all {
		ids = append(ids, i.ID)
	}
	if err != nil {
		s.Error(err)
	}
	return ids
}
