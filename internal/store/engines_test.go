package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/store/storetest"
	"github.com/grange-project/grange/internal/store/storetest/postgres"
)

// wants checks the code of an error.
func wants(t *testing.T, what string, err error, code farm.Code) {
	t.Helper()
	if e, ok := errors.AsType[*farm.Error](err); !ok || e.Code != code {
		t.Errorf("%s: %v, not %s", what, err, code)
	}
}

func putCell(name string) func(*store.Tx) error {
	return func(tx *store.Tx) error { return tx.PutCell(farm.Cell{Name: name}) }
}

// byHand runs a statement in a SQLite file, as an administrator would.
func byHand(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		t.Fatal(err)
	}
}

func newFarm(t *testing.T, url string) {
	t.Helper()
	db, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Update(t.Context(), putCell("a")); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSQLiteFilesThatAreRefused(t *testing.T) {
	path := func(t *testing.T) string { return filepath.Join(t.TempDir(), "farm.db") }
	for _, c := range []struct {
		name string
		make func(t *testing.T) string
		code farm.Code
	}{
		{"no name", func(*testing.T) string { return "" }, store.CodeNoStore},
		{"no directory", func(t *testing.T) string { return filepath.Join(path(t), "farm.db") }, store.CodeNoStore},
		{"of something else", func(t *testing.T) string {
			p := path(t)
			byHand(t, p, "CREATE TABLE photos (name TEXT)")
			return p
		}, store.CodeNotAFarm},
		{"in UTF-16", func(t *testing.T) string {
			p := path(t)
			byHand(t, p, "PRAGMA encoding = 'UTF-16'; PRAGMA application_id = 1735552615; CREATE TABLE migrations "+
				"(number BIGINT)")
			return p
		}, store.CodeBadEncoding},
		{"of a later release", func(t *testing.T) string {
			p := path(t)
			newFarm(t, p)
			byHand(t, p, "INSERT INTO migrations VALUES (1000)")
			return p
		}, store.CodeLater},
		{"no database", func(t *testing.T) string {
			p := path(t)
			if err := os.WriteFile(p, make([]byte, 4096), 0o600); err != nil {
				t.Fatal(err)
			}
			return p
		}, store.CodeDamaged},
		{"damaged", func(t *testing.T) string {
			p := path(t)
			newFarm(t, p)
			f, err := os.OpenFile(p, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt(make([]byte, 64<<10), 4096); err != nil {
				t.Fatal(err)
			}
			return p
		}, store.CodeDamaged},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := c.make(t)
			db, err := store.Open(t.Context(), url)
			wants(t, "open", err, c.code)
			if err == nil {
				db.Close()
			}
		})
	}
}

func TestSQLiteFileIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?c#%20.db") // a name, and no URL
	newFarm(t, path)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || info.Size() == 0 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestPostgresDatabases(t *testing.T) {
	pg, ctx := startPostgres(t), t.Context()
	for _, c := range []struct {
		name, options, statement string
		code                     farm.Code
	}{
		{"latin", "ENCODING 'LATIN1' LOCALE_PROVIDER libc LOCALE 'C'", "SELECT 1", store.CodeBadEncoding},
		{"else", "", "CREATE TABLE photos (name TEXT)", store.CodeNotAFarm},
		{"later", "", "CREATE TABLE migrations (number BIGINT); INSERT INTO migrations VALUES (1000)", store.CodeLater},
		{"foreign", "", "CREATE ROLE nobody LOGIN; REVOKE ALL ON SCHEMA public FROM PUBLIC", store.CodeNoStore},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := newDatabase(t, pg, c.name, c.options)
			if err := pg.Do(ctx, c.name, c.statement); err != nil {
				t.Fatal(err)
			}
			if c.name == "foreign" {
				url += "&user=nobody"
			}
			_, err := store.Open(ctx, url)
			wants(t, "open", err, c.code)
		})
	}
	_, err := store.Open(ctx, pg.URL("none"))
	wants(t, "no database", err, store.CodeNoStore)
	_, err = store.Open(ctx, "postgres://a:secret@[")
	wants(t, "no URL", err, store.CodeNoStore)
	_, err = store.Open(ctx, "postgres:///x?host=/nonexistent")
	wants(t, "no server", err, store.CodeNoStore)
}

// TestPostgresCrash: a Store outlives its database.
func TestPostgresCrash(t *testing.T) {
	pg, ctx := startPostgres(t), t.Context()
	db, err := store.Open(ctx, newDatabase(t, pg, "farm", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Update(ctx, putCell("a")); err != nil {
		t.Fatal(err)
	}
	waited := make(chan error)
	go func() {
		_, err := db.Wait(ctx, 1)
		waited <- err
	}()
	if err := pg.Kill(); err != nil {
		t.Fatal(err)
	}
	_, err = db.Update(ctx, putCell("b"))
	wants(t, "write", err, store.CodeNoStore)
	err = db.View(ctx, func(*store.Tx) error { return nil })
	wants(t, "read", err, store.CodeNoStore)
	if err := pg.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if revision, err := db.Update(ctx, putCell("c")); err != nil || revision != 2 {
		t.Errorf("after the restart: %d, %v", revision, err)
	}
	if err := <-waited; err != nil {
		t.Error(err)
	}
}

// TestPostgresEndsSessions: a transaction whose session is ended half-way is run again, and is there once.
func TestPostgresEndsSessions(t *testing.T) {
	pg, ctx := startPostgres(t), t.Context()
	db, err := store.Open(ctx, newDatabase(t, pg, "farm", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	runs := 0
	revision, err := db.Update(ctx, func(tx *store.Tx) error {
		if err := putCell("a")(tx); err != nil {
			return err
		}
		if runs++; runs <= 2 {
			endSessions(t, pg)
		}
		return putCell("b")(tx)
	})
	if err != nil || revision != 1 || runs != 3 {
		t.Errorf("revision %d after %d runs: %v", revision, runs, err)
	}
	if _, err := db.Update(ctx, func(tx *store.Tx) error {
		endSessions(t, pg)
		return putCell("c")(tx)
	}); err == nil {
		t.Error("a database that always ends the session let something be written")
	} else {
		wants(t, "always ended", err, store.CodeNoStore)
	}
}

// TestPostgresEndsSessionsTogether: whose session is ended again and again fails, and takes nobody else's writes with
// it, though the session was theirs too.
func TestPostgresEndsSessionsTogether(t *testing.T) {
	pg, ctx := startPostgres(t), t.Context()
	db, err := store.Open(ctx, newDatabase(t, pg, "farm", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var work sync.WaitGroup
	release := storetest.Hold(t, &work, db, putCell("first"))
	for n := range 12 {
		work.Go(func() {
			ends := map[int]int{3: 1, 7: 1000}[n] // how often its session is ended
			_, err := db.Update(ctx, func(tx *store.Tx) error {
				if ends--; ends >= 0 {
					endSessions(t, pg)
				}
				return putCell(fmt.Sprint("c", n))(tx)
			})
			if n == 7 {
				wants(t, "always ended", err, store.CodeNoStore)
			} else if err != nil {
				t.Errorf("%d: %v", n, err)
			}
		})
	}
	release()
	work.Wait()
	if revision, err := db.Update(ctx, putCell("last")); err != nil || revision != 1+11+1 {
		t.Errorf("revision %d after 13 updates, of which one failed: %v", revision, err)
	}
}

func endSessions(t *testing.T, pg *postgres.Server) {
	t.Helper()
	if err := pg.Do(context.WithoutCancel(t.Context()), "farm",
		"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'grange' AND state "+
			"LIKE 'idle in%'"); err != nil {
		t.Error(err)
	}
}

// TestTwoServersStart: both make the tables, and one of them is first.
func TestTwoServersStart(t *testing.T) {
	pg := startPostgres(t)
	for name, url := range map[string]string{"SQLite": filepath.Join(t.TempDir(), "farm.db"),
		"PostgreSQL": newDatabase(t, pg, "farm", "")} {
		t.Run(name, func(t *testing.T) {
			failed := make(chan error)
			for range 4 {
				go func() {
					db, err := store.Open(t.Context(), url)
					if err == nil {
						err = db.Close()
					}
					failed <- err
				}()
			}
			for range 4 {
				if err := <-failed; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestSQLiteLocked: who holds the lock too long is named, and nothing is tried for ever.
func TestSQLiteLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "farm.db")
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	other, err := sql.Open("sqlite", path+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	tx, err := other.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = db.Update(ctx, putCell("a"))
	wants(t, "write", err, store.CodeStoreBusy)
	if err := db.View(ctx, func(tx *store.Tx) error { _, err := tx.Cells(); return err }); err != nil {
		t.Error(err)
	}
}

// TestCheck finds what somebody wrote past the server, and copies refuse it too.
func TestCheck(t *testing.T) {
	for what, statement := range map[string]string{
		"other text":  "UPDATE objects SET owner = CAST(x'ff' AS TEXT)",
		"broken JSON": "UPDATE objects SET body = '{'",
	} {
		path := filepath.Join(t.TempDir(), "farm.db")
		newFarm(t, path)
		if found, err := store.Check(t.Context(), path); err != nil || found.Revision != 1 || found.Objects != 1 ||
			found.Todo != 0 {
			t.Errorf("a sound one: %+v, %v", found, err)
		}
		byHand(t, path, statement)
		if found, err := store.Check(t.Context(), path); err == nil {
			t.Errorf("%s: %v", what, found)
		}
	}
	path := filepath.Join(t.TempDir(), "farm.db")
	newFarm(t, path)
	byHand(t, path, "UPDATE objects SET owner = CAST(x'ff' AS TEXT)")
	_, err := store.Check(t.Context(), path)
	wants(t, "check", err, store.CodeBadText)
	_, err = store.Copy(t.Context(), path, filepath.Join(t.TempDir(), "copy.db"))
	wants(t, "copy", err, store.CodeBadText)
}
