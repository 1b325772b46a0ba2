package store

import (
	"context"
	"embed"
	"fmt"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// migrations are numbered texts, each applied once and never changed after a release. There is no way back: restore a
// backup.
//
//go:embed migrations/*.sql
var migrations embed.FS

type migration struct {
	number int64
	text   string
}

// steps are the migrations in order.
func steps() ([]migration, error) {
	files, err := migrations.ReadDir("migrations")
	if err != nil {
		return nil, fmt.Errorf("store: read migrations: %w", err)
	}
	var all []migration
	for i, f := range files {
		first, _, _ := strings.Cut(f.Name(), "_")
		number, err := strconv.ParseInt(first, 10, 64)
		if err != nil || number != int64(i+1) {
			return nil, fmt.Errorf("store: %s is not migration %d", f.Name(), i+1)
		}
		text, err := migrations.ReadFile("migrations/" + f.Name())
		if err != nil {
			return nil, fmt.Errorf("store: read migrations: %w", err)
		}
		all = append(all, migration{number, string(text)})
	}
	return all, nil
}

// migrate brings the tables to this release's, all in one transaction: both engines can take back what makes tables.
func (s *Store) migrate(ctx context.Context) error {
	all, err := steps()
	if err != nil {
		return err
	}
	tx, err := s.beginWrite(ctx)
	if err != nil {
		return s.explain(ctx, err)
	}
	defer tx.Rollback()
	t := newTx(&sqlTx{ctx: ctx, asked: ctx, store: s, tx: tx, shared: &shared{}})
	if err := s.migrateIn(t, all); err != nil {
		return s.explain(ctx, err)
	}
	return s.explain(ctx, tx.Commit())
}

func (s *Store) migrateIn(t *Tx, all []migration) error {
	if err := s.engine.lock(t); err != nil {
		return err
	}
	if _, err := t.tx.ExecContext(t.ctx,
		"CREATE TABLE IF NOT EXISTS migrations (number BIGINT NOT NULL PRIMARY KEY)"); err != nil {
		return err
	}
	var done int64
	if err := t.tx.QueryRowContext(t.ctx, "SELECT COALESCE(MAX(number), 0) FROM migrations").Scan(&done); err != nil {
		return err
	}
	if done > int64(len(all)) {
		return later(done, int64(len(all)))
	}
	for _, m := range all[done:] {
		if err := s.apply(t, m); err != nil {
			return fmt.Errorf("migration %d: %w", m.number, err)
		}
	}
	return nil
}

func (s *Store) apply(t *Tx, m migration) error {
	if _, err := t.tx.ExecContext(t.ctx, s.engine.schema(m.text)); err != nil {
		return err
	}
	_, err := t.tx.ExecContext(t.ctx, "INSERT INTO migrations (number) VALUES ($1)", m.number)
	return err
}

func later(done, known int64) error {
	return &farm.Error{Kind: farm.Conflict, Code: CodeLater,
		Message: fmt.Sprintf("the database has tables of a later release: %d steps, and this release knows %d", done,
			known), Hint: "start that release or a later one; to go back, restore a backup from before the upgrade"}
}
