package store

import (
	"context"
	"database/sql"
	"sync"
)

// maxStatements bounds how many texts are kept ready; there are fewer, unless filters are put together in ever new
// ways.
const maxStatements = 256

// statements are texts that SQLite need not read again for each transaction: reading them is a fifth of a short one. A
// text becomes one in the transaction after its first, for no connection but the transaction's own may be free while
// that lasts.
type statements struct {
	mu     sync.Mutex
	ready  map[string]*sql.Stmt
	wanted map[string]bool
}

// of is a text that is ready, as the transaction's own; nil when it is not, and it will be for the next.
func (s *statements) of(ctx context.Context, tx *sql.Tx, text string) *sql.Stmt {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stmt := s.ready[text]; stmt != nil {
		return tx.StmtContext(ctx, stmt)
	}
	if len(s.ready)+len(s.wanted) < maxStatements {
		if s.wanted == nil {
			s.wanted = map[string]bool{}
		}
		s.wanted[text] = true
	}
	return nil
}

// prepare makes ready what was asked for. What cannot be is prepared by each transaction, which then says why not.
func (s *statements) prepare(ctx context.Context, db *sql.DB) {
	s.mu.Lock()
	wanted := s.wanted
	s.wanted = nil
	s.mu.Unlock()
	for text := range wanted {
		stmt, err := db.PrepareContext(ctx, text)
		if err != nil {
			continue
		}
		s.mu.Lock()
		if s.ready == nil {
			s.ready = map[string]*sql.Stmt{}
		}
		if old := s.ready[text]; old != nil {
			_ = stmt.Close() // another transaction was faster
		} else {
			s.ready[text] = stmt
		}
		s.mu.Unlock()
	}
}
