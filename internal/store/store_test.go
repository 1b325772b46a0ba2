package store_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/grange-project/grange/internal/store/storetest"
	"github.com/grange-project/grange/internal/store/storetest/postgres"
)

func TestSQLite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) string { return filepath.Join(t.TempDir(), "farm.db") })
}

func TestPostgres(t *testing.T) {
	pg := startPostgres(t)
	var n atomic.Int64
	storetest.Run(t, func(t *testing.T) string { return newDatabase(t, pg, fmt.Sprint("farm", n.Add(1)), "") })
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
