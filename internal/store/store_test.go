package store_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/grange-project/grange/internal/store/storetest"
	"github.com/grange-project/grange/internal/store/storetest/postgres"
)

func TestSQLite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) string { return filepath.Join(t.TempDir(), "farm.db") })
}

func TestPostgres(t *testing.T) {
	pg := startPostgres(t)
	url, n := newDatabase(t, pg, "farms", ""), 0
	storetest.Run(t, func(t *testing.T) string { // a schema is an empty database too, and is made ten times faster
		n++
		schema := fmt.Sprint("farm", n)
		if err := pg.Do(t.Context(), "farms", "CREATE SCHEMA "+schema); err != nil {
			t.Fatal(err)
		}
		return url + "&search_path=" + schema
	})
}

func startPostgres(t *testing.T) *postgres.Server {
	t.Helper()
	pg, err := postgres.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Stop(); err != nil {
			t.Error(err)
		}
	})
	return pg
}

func newDatabase(t *testing.T, pg *postgres.Server, name, options string) string {
	t.Helper()
	if err := pg.Create(context.WithoutCancel(t.Context()), name, options); err != nil {
		t.Fatal(err)
	}
	return pg.URL(name)
}
