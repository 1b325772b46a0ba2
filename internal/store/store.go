// Package store keeps the farm in SQL: one text for SQLite and PostgreSQL. An exported method of Store is a
// transaction, a method of Tx is one statement in it, or a few. It decides nothing.
package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/turns"
)

// Store is a database. It is safe for several goroutines.
type Store struct {
	engine engine
	write  *sql.DB // SQLite: one connection
	read   *sql.DB
	keep   int64         // revisions that the change feed reaches back, at least
	poll   time.Duration // how often the revision is read while somebody waits
	now    func() time.Time
	clock  func() time.Time // of the wall

	// People is in which order users read: each has at most half of the snapshots that can be read at a time, and all
	// of them leave one for hosts and for the server itself.
	People *turns.Turns

	writing, reading statements
	queue            queue // of Updates
	written          written

	feed     feed
	recent   recent
	lease    seenLease
	networks kept[farm.FleetNetwork]
	end      context.CancelFunc
	tasks    sync.WaitGroup
}

// Options are what seldom needs a choice; zero fields have a good value.
type Options struct {
	Keep int64            // revisions that the change feed reaches back, at least; 0: 10000
	Now  func() time.Time // a monotonic clock for the lease; nil: time.Now
	// Clock is the wall clock by which it is known when VMs came to hosts and left; nil: time.Now.
	Clock func() time.Time
}

// The bounds of retries, and of waiting for others' writes.
const (
	keepRevisions = 10000
	pollInterval  = 500 * time.Millisecond
	relisten      = time.Second
	attempts      = 5
	firstPause    = 10 * time.Millisecond
	timeout       = 5 * time.Second
)

// Open opens the database at a path (SQLite) or a postgres:// URL, and brings its tables to this release's. A database
// of a later release is refused, and one that is damaged or has another encoding than UTF-8.
func Open(ctx context.Context, url string) (*Store, error) {
	return OpenWith(ctx, url, Options{})
}

// OpenWith is Open with options.
func OpenWith(ctx context.Context, url string, o Options) (*Store, error) {
	s, err := connect(ctx, url, o)
	if err != nil {
		return nil, err
	}
	if err := s.migrate(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.begin(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// connect opens the engine and looks at the database, and changes nothing in it.
func connect(ctx context.Context, url string, o Options) (*Store, error) {
	s := &Store{keep: o.Keep, poll: pollInterval, now: o.Now, clock: o.Clock, end: func() {}}
	if s.keep == 0 {
		s.keep = keepRevisions
	}
	s.recent.keep, s.queue.rhythm = s.keep, startRhythm
	if s.now == nil {
		s.now = time.Now
	}
	if s.clock == nil {
		s.clock = time.Now
	}
	var err error
	if isPostgres(url) {
		err = s.openPostgres(ctx, url)
	} else {
		err = s.openSQLite(ctx, strings.TrimPrefix(url, "sqlite:"))
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func isPostgres(url string) bool {
	return strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://")
}

// begin starts what wakes those who wait.
func (s *Store) begin(ctx context.Context) error {
	revision, err := s.revision(ctx)
	if err != nil {
		return err
	}
	s.feed.start(revision)
	run, end := context.WithCancel(context.Background())
	s.end = end
	s.tasks.Go(func() { s.watch(run) })
	s.tasks.Go(func() { s.listen(run) })
	return nil
}

// Close ends its goroutines and closes the database.
func (s *Store) Close() error {
	s.end()
	s.tasks.Wait()
	var errs []error
	for _, db := range []*sql.DB{s.read, s.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// Update runs one write transaction. Writers run one after the other on both engines, so that what do reads stays true
// until the commit. What others write at the same time may be committed with it; an error or a panic of do takes nobody
// else's writes with it. do runs in another goroutine than its caller's, and may be run again, when the database asks
// for that: it must have no effect but on the Tx, and on variables that it sets anew each time. It does not run any
// more when Update has returned. The revision is that of all that was written; when do writes nothing, it is that of
// the last write of anybody. When the answer to the commit is lost the error's code is CodeUnsure.
func (s *Store) Update(ctx context.Context, do func(*Tx) error) (revision int64, err error) {
	return s.update(ctx, false, do)
}

// UpdateAhead is Update for one whom many wait for: it goes before those Updates of this process that have not begun.
func (s *Store) UpdateAhead(ctx context.Context, do func(*Tx) error) (revision int64, err error) {
	return s.update(ctx, true, do)
}

// unsure is an error of the commit itself: whether it was done is not known.
type unsure struct{ error }

func (u unsure) Unwrap() error { return u.error }

// again reports whether a transaction that ended with err has surely changed nothing, and may succeed when it is run
// again.
func (s *Store) again(err error) bool {
	if _, own := errors.AsType[*farm.Error](err); own {
		return false
	}
	if _, maybe := errors.AsType[unsure](err); maybe {
		return s.engine.refused(err)
	}
	return s.engine.refused(err) || s.engine.lost(err)
}

// written is the revision that an Update returns.
func (t *Tx) written() int64 {
	if !t.wrote {
		return t.revision - 1
	}
	return t.revision
}

// committed notifies those who wait.
func (s *Store) committed(t *Tx) {
	s.recent.add(t.revision, commit{t.changes, t.entered})
	t.ended(nil)
	s.feed.advance(t.revision)
	s.queue.untidied.Add(int64(len(t.changes)))
}

// beginWrite begins a transaction that writes. While another process writes to the same file it asks again, for some
// seconds.
func (s *Store) beginWrite(ctx context.Context) (*sql.Tx, error) {
	for begun := time.Now(); ; {
		tx, err := s.write.BeginTx(s.engine.statements(ctx), nil)
		if err == nil || !s.engine.occupied(err) || time.Since(begun) > timeout || ctx.Err() != nil {
			return tx, err
		}
	}
}

// View runs do on one snapshot. It may be run again when the connection is lost.
func (s *Store) View(ctx context.Context, do func(*Tx) error) error {
	err := s.viewOnce(ctx, do)
	if err != nil && s.again(err) {
		err = s.viewOnce(ctx, do)
	}
	return s.explain(ctx, err)
}

func (s *Store) viewOnce(ctx context.Context, do func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.reading.prepare(ctx, s.read)
	tx, err := s.read.BeginTx(s.engine.statements(ctx), s.engine.snapshot())
	if err != nil {
		return err
	}
	defer tx.Rollback()
	t := newTx(&sqlTx{ctx: s.engine.statements(ctx), asked: ctx, store: s, tx: tx, kept: &s.reading, shared: &shared{}})
	if err := t.row("SELECT revision FROM farm WHERE id = 1").Scan(&t.revision); err != nil {
		return err
	}
	if err := do(t); err != nil {
		return err
	}
	return t.err
}

// revision is that of the last commit.
func (s *Store) revision(ctx context.Context) (revision int64, err error) {
	err = s.read.QueryRowContext(ctx, "SELECT revision FROM farm WHERE id = 1").Scan(&revision)
	return revision, s.explain(ctx, err)
}
