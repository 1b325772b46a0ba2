package storetest

import (
	"fmt"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

func aSession(id, user string) farm.Session {
	return farm.Session{ID: id, User: user, Hash: []byte{1, 2}, Client: "a browser", Address: "192.0.2.1", Means: "oidc",
		Source: "cern 17", Role: farm.RoleMember, Projects: []string{"p"},
		Grants:  []farm.Grant{{User: user, Role: farm.RoleMember, Project: "p"}},
		Created: noon, Used: noon, Ends: noon.Add(time.Hour), Limit: noon.Add(24 * time.Hour)}
}

// sessions go with their user, and when they are used wakes nobody.
func sessions(s *suite) {
	db, mine, other := s.new(), aSession("s1", "ann"), aSession("s2", "ben")
	revision := s.update(db, func(tx *store.Tx) error {
		if err := tx.PutUser(farm.User{Name: "ann"}); err != nil {
			return err
		}
		if err := tx.PutUser(farm.User{Name: "ben"}); err != nil {
			return err
		}
		if err := tx.InsertSession(other); err != nil {
			return err
		}
		return tx.InsertSession(mine)
	})
	check := func(what, user string, want ...farm.Session) {
		s.Helper()
		s.view(db, func(tx *store.Tx) error {
			got, err := tx.Sessions(user)
			same(s, what, want, err, got)
			return nil
		})
	}
	check("all", "", mine, other)
	check("of a user", "ann", mine)
	mine.Used, mine.Ends = noon.Add(time.Minute), noon.Add(2*time.Hour)
	for _, used := range []time.Time{mine.Used, noon} { // what comes late from another server changes nothing
		if err := db.SawSession(s.ctx, "s1", used, mine.Ends); err != nil {
			s.Fatal(err)
		}
	}
	check("used", "ann", mine)
	s.view(db, func(tx *store.Tx) error {
		got, err := tx.Session("s1")
		same(s, "by ID", mine, err, got)
		same(s, "the revision", revision, nil, tx.Revision())
		return nil
	})
	s.update(db, func(tx *store.Tx) error { return tx.PutUser(farm.User{Name: "ann", Disabled: true}) })
	check("of a disabled user", "ann")
	s.update(db, func(tx *store.Tx) error { return tx.DeleteUser("ben") })
	check("of a deleted user", "")
	s.update(db, func(tx *store.Tx) error {
		for n := range 3 {
			old := aSession(fmt.Sprint("t", n), "ann")
			old.Ends = noon.Add(time.Duration(n) * time.Minute)
			if err := tx.InsertSession(old); err != nil {
				return err
			}
		}
		_, err := tx.PruneSessions(noon.Add(time.Minute))
		return err
	})
	s.view(db, func(tx *store.Tx) error {
		got, err := tx.Sessions("")
		if err != nil || len(got) != 1 || got[0].ID != "t2" {
			s.Errorf("pruned: %v, %v", got, err)
		}
		return nil
	})
	if err := s.in(db, func(tx *store.Tx) error { return tx.DeleteSession("s1") }); !farm.IsKind(err, farm.NotFound) {
		s.Errorf("one that is gone: %v", err)
	}
}
