package store

import (
	"context"
	"time"
)

// group is the Updates of one transaction of the database, with a savepoint for each where there are several.
type group struct {
	tx      *Tx // what no Update writes alone
	updates []*update
	decided bool // what becomes of them is known
}

const (
	// maxTogether bounds a group: how long its first waits for its last, and the next one for its turn.
	maxTogether = 64
	// groupTime bounds it where the connection has died and nobody says so.
	groupTime = time.Minute
)

// writeGroup writes the next update, with those behind it. Where they cannot be written together each is tried alone.
func (s *Store) writeGroup() {
	g := &group{}
	defer func() { s.queue.tell(g.updates) }()
	ctx, cancel := context.WithTimeout(context.Background(), groupTime)
	defer cancel()
	if err := g.begin(ctx, s); err != nil { // which each of them would find out after some seconds
		for u := s.queue.next(); u != nil; u = s.queue.next() {
			g.updates = append(g.updates, u)
			u.err = s.explain(u.ctx, err)
		}
		return
	}
	if g.fill(&s.queue) == nil {
		return
	}
	var away error
	for _, u := range g.updates {
		if away == nil {
			away = s.writeAlone(u)
		}
		if away != nil {
			u.err = s.explain(u.ctx, away)
		}
	}
}

// writeAlone writes one in a transaction of its own, several times where the database asks for that. It returns an
// error when no transaction can be begun.
func (s *Store) writeAlone(u *update) (away error) {
	for i := 1; ; i++ {
		err, away := s.tryAlone(u)
		if err == nil || away != nil {
			return away
		}
		if i == attempts || !s.again(err) {
			u.err = s.explain(u.ctx, err)
			return nil
		}
	}
}

func (s *Store) tryAlone(u *update) (err, away error) {
	ctx, cancel := context.WithTimeout(context.Background(), groupTime)
	defer cancel()
	g := &group{updates: []*update{u}}
	if err := g.begin(ctx, s); err != nil {
		return err, err
	}
	defer g.end()
	if err := g.run(u, false); err != nil {
		return err, nil
	}
	return g.commit(), nil
}

// begin begins the transaction under the lock of all writers: until then nobody has begun, and all may still leave. It
// tries a few times.
func (g *group) begin(ctx context.Context, s *Store) error {
	pause := firstPause
	for i := 1; ; i++ {
		err := g.tryBegin(ctx, s)
		if err == nil || i == attempts || !s.again(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
			pause *= 2
		}
	}
}

// tryBegin raises the revision once for all: the others' are written when the last is known.
func (g *group) tryBegin(ctx context.Context, s *Store) error {
	s.writing.prepare(ctx, s.write)
	tx, err := s.beginWrite(ctx)
	if err != nil {
		return err
	}
	g.tx = newTx(&sqlTx{ctx: s.engine.statements(ctx), asked: ctx, store: s, tx: tx, kept: &s.writing,
		shared: &shared{}})
	err = g.tx.row("UPDATE farm SET revision = revision + 1 WHERE id = 1 RETURNING revision").Scan(&g.tx.shared.first)
	if err != nil {
		_ = tx.Rollback()
	}
	return err
}

// fill writes the first of those that wait and who comes to it. After an error nothing of the group was done.
func (g *group) fill(q *queue) error {
	defer g.end()
	u := q.next()
	alone := q.empty(false)
	for begun := time.Now(); u != nil; u = q.next() {
		g.updates = append(g.updates, u)
		if err := g.run(u, !alone); err != nil {
			return err
		}
		if alone || len(g.updates) == maxTogether || time.Since(begun) > q.rhythm.now {
			break
		}
	}
	return g.commit()
}

// run runs one update. After an error the transaction is gone.
func (g *group) run(u *update, savepoint bool) (gone error) {
	s, shared := g.tx.store, g.tx.shared
	u.revision, u.wrote = 0, false
	u.tx = newTx(&sqlTx{ctx: g.tx.ctx, asked: u.ctx, store: s, tx: g.tx.tx, kept: g.tx.kept, shared: shared,
		revision: shared.first + int64(len(shared.written))})
	if u.err = u.ctx.Err(); u.err != nil {
		return nil
	}
	if savepoint {
		if _, err := g.tx.execute("SAVEPOINT one", nil); err != nil {
			return err
		}
	}
	err := u.run()
	switch {
	case u.ctx.Err() != nil:
		err = u.ctx.Err()
	case err != nil && s.again(err):
		return err
	}
	if savepoint && (err != nil || !u.tx.wrote) {
		if _, err := g.tx.execute("ROLLBACK TO one", nil); err != nil {
			return err
		}
	}
	if savepoint {
		if _, err := g.tx.execute("RELEASE one", nil); err != nil {
			return err
		}
	}
	if u.err = s.explain(u.ctx, err); err != nil {
		return nil
	}
	u.revision, u.wrote = u.tx.written(), u.tx.wrote
	if u.wrote {
		shared.written = append(shared.written, u.tx)
	}
	return nil
}

// commit commits what was written, if anything was. After an error none of it was.
func (g *group) commit() error {
	s, written := g.tx.store, g.tx.shared.written
	var failed error
	if len(written) > 0 {
		if err := g.finish(written); err != nil {
			return err
		}
		asked := time.Now()
		if err := g.tx.tx.Commit(); err != nil {
			failed = unsure{err}
		}
		took := time.Since(asked)
		s.queue.rhythm.committed(took)
		if failed == nil {
			s.written.commit(len(written), took)
		}
	}
	if failed != nil && s.again(failed) {
		return failed
	}
	g.decided = true
	for _, u := range g.updates {
		switch {
		case failed != nil && u.err == nil: // also of one that wrote nothing: what it read may be of another one
			u.err = s.explain(u.ctx, failed)
			u.tx.ended(u.err)
		case failed == nil && u.wrote:
			s.committed(u.tx)
		}
	}
	return nil
}

// finish writes what a group writes once: the last revision, for only the first is there, and what projects use.
func (g *group) finish(written []*Tx) error {
	if last := written[len(written)-1]; last.revision > g.tx.shared.first {
		if _, err := g.tx.execute("UPDATE farm SET revision = $1 WHERE id = 1", []any{last.revision}); err != nil {
			return err
		}
	}
	if err := writeUsed(written); err != nil {
		return err
	}
	return g.tx.store.engine.announce(g.tx)
}

// end ends the transaction, where commit did not, and tells those of whom it was not told what became of it.
func (g *group) end() {
	_ = g.tx.tx.Rollback() // after a commit it does nothing
	for _, u := range g.updates {
		if u.tx != nil {
			u.tx.ended(errBroken)
		}
		if !g.decided {
			u.err = errBroken
		}
	}
}
