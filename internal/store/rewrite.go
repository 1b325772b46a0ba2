package store

import "context"

// Rewrite writes the tables anew that had a secret, so that nothing of it is left in what was free in them. It takes a
// database's time: other writers wait.
func (s *Store) Rewrite(ctx context.Context) error {
	for _, text := range s.engine.rewrite() {
		if _, err := s.write.ExecContext(ctx, text); err != nil {
			return s.explain(ctx, err)
		}
	}
	return nil
}

// rewrite leaves nothing in the log either, which has the old pages.
func (sqliteEngine) rewrite() []string { return []string{"VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"} }

func (postgresEngine) rewrite() []string { return []string{"VACUUM FULL objects"} }
