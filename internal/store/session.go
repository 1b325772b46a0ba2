package store

import (
	"context"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// sessionRows are who is signed in. They are not in the change feed.
type sessionRows struct{ *sqlTx }

const sessionColumns = "body, used, ends"

func scanSession(r scanner) (s farm.Session, err error) {
	var body string
	var used, ends int64
	if err := r.Scan(&body, &used, &ends); err != nil {
		return s, err
	}
	err = decode(body, &s)
	s.Used, s.Ends = unstamp(used), unstamp(ends)
	return s, err
}

// Session is the one with an ID, whether it has ended or not.
func (t sessionRows) Session(id string) (farm.Session, error) {
	s, err := scanSession(t.row("SELECT "+sessionColumns+" FROM sessions WHERE id = $1", id))
	return s, found(err, "session", id)
}

// Sessions are those of a user; "": of all.
func (t sessionRows) Sessions(user string) (all []farm.Session, err error) {
	read := func(r scanner) error {
		s, err := scanSession(r)
		all = append(all, s)
		return err
	}
	if user == "" {
		err = t.each(read, "SELECT "+sessionColumns+" FROM sessions ORDER BY id")
		return all, err
	}
	err = t.each(read, "SELECT "+sessionColumns+" FROM sessions WHERE person = $1 ORDER BY id", user)
	return all, err
}

// InsertSession writes a new session.
func (t sessionRows) InsertSession(s farm.Session) error {
	used, ends := s.Used, s.Ends
	s.Used, s.Ends = time.Time{}, time.Time{} // of their columns
	body, err := encode(s)
	if err != nil {
		return err
	}
	_, err = t.exec("INSERT INTO sessions (id, person, used, ends, body) VALUES ($1, $2, $3, $4, $5)", s.ID, s.User,
		stamp(used), stamp(ends), body)
	return err
}

// DeleteSession takes a session away.
func (t sessionRows) DeleteSession(id string) error {
	n, err := t.exec("DELETE FROM sessions WHERE id = $1", id)
	return must(n, err, "session", id)
}

// PruneSessions drops sessions that have ended at a time; again: there may be more.
func (t sessionRows) PruneSessions(at time.Time) (again bool, err error) {
	n, err := t.exec("DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE ends <= $1 ORDER BY ends LIMIT $2)",
		stamp(at), pruneAtOnce)
	return n == pruneAtOnce, err
}

// SawSession notes that a session was used, and when it ends now, in a transaction that has no revision and wakes
// nobody. One that is gone is passed over.
func (s *Store) SawSession(ctx context.Context, id string, used, ends time.Time) error {
	return s.locked(ctx, func(t *Tx) error {
		_, err := t.exec("UPDATE sessions SET used = $1, ends = $2 WHERE id = $3 AND used < $1", stamp(used),
			stamp(ends), id)
		return err
	})
}
