package storetest

import (
	"errors"
	"fmt"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// hostLists: what is read of several hosts at once is what is read of each.
func hostLists(s *suite) {
	db := s.new()
	const many = 250 // more than one query asks for
	var all []farm.Host
	s.update(db, func(tx *store.Tx) error {
		for n := range many {
			h := aHost(n)
			h.Name = fmt.Sprintf("host-%03d", n)
			if err := errors.Join(tx.InsertHost(h), tx.PutOrphan(farm.Orphan{Host: h.ID, VM: "v1"}),
				tx.PutOrphan(farm.Orphan{Host: h.ID, VM: "v0"})); err != nil {
				return err
			}
			h.Revision = tx.Revision()
			all = append(all, h)
		}
		return nil
	})
	brief := func(from, to, step int) (hosts []farm.Host) {
		for n := from; n < to; n += step {
			h := all[n]
			h.Facts, h.Kind = farm.Facts{}, ""
			hosts = append(hosts, h)
		}
		return hosts
	}
	s.view(db, func(tx *store.Tx) error {
		got, err := tx.HostsBriefAfter("", "", 3)
		same(s, "first page", brief(0, 3, 1), err, got)
		got, err = tx.HostsBriefAfter("", "host-247", 3)
		same(s, "last page", brief(248, many, 1), err, got)
		got, err = tx.HostsBriefAfter("b1", "host-1", 3)
		same(s, "page of a cell", brief(101, 107, 2), err, got)

		var refs []string
		for n, h := range all[20:220] {
			refs = append([]string{[]string{h.Name, h.ID}[n%2], "none"}, refs...)
		}
		got, err = tx.HostsCalled(append(refs, all[20].ID, all[20].Name))
		same(s, "by name or ID, each once", brief(20, 220, 1), err, got)
		got, err = tx.HostsCalled(nil)
		same(s, "of no name", nil, err, got)

		got = append(brief(0, many, 1), farm.Host{ID: "gone", Name: "gone"})
		err = tx.AddFacts(got)
		same(s, "with facts", append(all[:many:many], farm.Host{ID: "gone", Name: "gone"}), err, got)

		orphans, err := tx.OrphansOf([]farm.Host{all[7], all[3], {ID: "gone"}})
		same(s, "strangers", []farm.Orphan{{Host: "h3", VM: "v0"}, {Host: "h3", VM: "v1"}, {Host: "h7", VM: "v0"},
			{Host: "h7", VM: "v1"}}, err, orphans)
		return nil
	})
	s.fails("by what is no text", s.in(db,
		func(tx *store.Tx) error { _, err := tx.HostsCalled([]string{"\xff"}); return err }), store.CodeBadText)
}

// touched: a host that was touched is as it was, at another revision.
func touched(s *suite) {
	db, h := s.new(), aHost(1)
	inserted := s.update(db, func(tx *store.Tx) error { return tx.InsertHost(h) })
	h.Revision = s.update(db, func(tx *store.Tx) error { return tx.TouchHost(h.ID) })
	s.view(db, func(tx *store.Tx) error {
		got, err := tx.Host(h.ID)
		same(s, "touched", h, err, got)
		return nil
	})
	changes, _, err := db.Changes(s.ctx, inserted, 10)
	same(s, "those who watch are told",
		[]store.Change{{Revision: h.Revision, Kind: store.KindHost, ID: h.ID, Host: h.ID}}, err, changes)
	s.fails("one that is not there", s.in(db, func(tx *store.Tx) error { return tx.TouchHost("gone") }),
		store.CodeAbsent)
}
