package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/turns"
)

// readers is how many snapshots of a SQLite file are open at a time.
const readers = 4

// writeCache is how much of the file the writer keeps at hand, in KiB. The kernel has the rest; SQLite looks through
// all of its own after each commit that has balanced a tree.
const writeCache = 2 << 10

// applicationID marks a SQLite file as a farm's: "grng".
const applicationID = 0x67726e67

// longLog is how many pages of 4 KiB the log of a SQLite file has at most before a commit itself writes it back:
// readers may have kept tidy from it.
const longLog = 16000

// sqliteEngine is SQLite: one server, one file.
type sqliteEngine struct{ path string }

func (s *Store) openSQLite(ctx context.Context, path string) error {
	engine := sqliteEngine{path: path}
	s.engine = engine
	if err := engine.prepareFile(); err != nil {
		return err
	}
	s.write = sql.OpenDB(&sqliteConnector{engine.dsn("_txlock=immediate",
		"_pragma=cache_size(-"+strconv.Itoa(writeCache)+")",
		"_pragma=temp_store(memory)", // where savepoints keep what they may take back
		"_pragma=wal_autocheckpoint("+strconv.Itoa(longLog)+")")})
	s.write.SetMaxOpenConns(1)
	s.write.SetMaxIdleConns(1)
	s.write.SetConnMaxLifetime(0)
	s.read = sql.OpenDB(&sqliteConnector{engine.dsn("_txlock=deferred", "_pragma=query_only(1)")})
	s.read.SetMaxOpenConns(readers)
	s.read.SetMaxIdleConns(readers)
	s.People = turns.New(readers-1, readers/2)
	if err := engine.checkPatiently(ctx, s.write); err != nil {
		return s.explain(ctx, err)
	}
	// beginWrite asks again: SQLite's own pauses grow to a tenth of a second
	_, err := s.write.ExecContext(ctx, "PRAGMA busy_timeout = 3")
	return s.explain(ctx, err)
}

// prepareFile makes an absent file, which nobody else may read: it holds hashes of secrets and users' data.
func (e sqliteEngine) prepareFile() error {
	if e.path == "" {
		return &farm.Error{Kind: farm.Invalid, Code: CodeNoStore, Message: "no database is named",
			Hint: "name a file, or a postgres:// URL"}
	}
	f, err := os.OpenFile(e.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return &farm.Error{Kind: farm.Unavailable, Code: CodeNoStore, Message: "open the database " + e.path, Err: err,
			Hint: "its directory must be there, and be writable for this process"}
	}
	return f.Close()
}

// dsn names the file with what every connection needs: writes that outlive a power cut, readers that do not wait for
// the writer.
func (e sqliteEngine) dsn(more ...string) string {
	path, err := filepath.Abs(e.path)
	if err != nil {
		path = e.path
	}
	options := append([]string{"_pragma=busy_timeout(5000)", "_pragma=journal_mode(WAL)", "_pragma=synchronous(FULL)",
		"_pragma=foreign_keys(1)", "_pragma=trusted_schema(0)"}, more...)
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + strings.Join(options, "&")
}

// checkPatiently is check, which opens the first connection, too. To make the log of a new file, or to begin with one
// that another process is just leaving, SQLite needs the file for itself, and does not wait for it.
func (e sqliteEngine) checkPatiently(ctx context.Context, db *sql.DB) error {
	for begun := time.Now(); ; {
		err := e.check(ctx, db)
		if !e.occupied(err) || time.Since(begun) > timeout {
			return err
		}
		select {
		case <-time.After(firstPause):
		case <-ctx.Done():
			return err
		}
	}
}

// check refuses a file that is no farm's, or that is damaged.
func (e sqliteEngine) check(ctx context.Context, db *sql.DB) error {
	var encoding, health string
	var id, tables int64
	if err := db.QueryRowContext(ctx, "PRAGMA application_id").Scan(&id); err != nil {
		return err
	}
	if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM sqlite_schema").Scan(&tables); err != nil {
		return err
	}
	if id != applicationID && tables > 0 {
		return &farm.Error{Kind: farm.Invalid, Code: CodeNotAFarm, Message: e.path + " is a database of something else",
			Hint: "name another file, or none that is there"}
	}
	if err := db.QueryRowContext(ctx, "PRAGMA encoding").Scan(&encoding); err != nil {
		return err
	}
	if encoding != "UTF-8" {
		return badEncoding(e.path, encoding)
	}
	if err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&health); err != nil {
		return err
	}
	if health != "ok" {
		return damaged(e.path, errors.New(health))
	}
	return e.checkKeys(ctx, db)
}

func (e sqliteEngine) checkKeys(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, "PRAGMA foreign_key_check")
	if err != nil {
		return err
	}
	defer rows.Close()
	if rows.Next() {
		return damaged(e.path, errors.New("a row names another one that is not there"))
	}
	return rows.Err()
}

func badEncoding(where, encoding string) error {
	return &farm.Error{Kind: farm.Invalid, Code: CodeBadEncoding,
		Message: fmt.Sprintf("the database %s is in %s, not in UTF-8", where, encoding),
		Hint:    "make one with the encoding UTF-8, and bring the farm there with grange store copy"}
}

func damaged(where string, err error) error {
	return &farm.Error{Kind: farm.Internal, Code: CodeDamaged, Message: "the database " + where + " is damaged",
		Err: err, Hint: "keep the file, and restore the last backup into a new one with grange server restore"}
}

func (sqliteEngine) prepares() bool { return true }
func (sqliteEngine) tables() string {
	return "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
}

// statements: one that can be broken off has a goroutine beside it, which costs as much as the statement. They are
// short, Tx looks at its context between them and between rows, and a transaction that nobody waits for any more is not
// committed.
func (sqliteEngine) statements(ctx context.Context) context.Context {
	return context.WithoutCancel(ctx)
}

func (sqliteEngine) snapshot() *sql.TxOptions { return nil }
func (sqliteEngine) announce(*Tx) error       { return nil }

// tidy writes back what of the log no reader looks at, and waits for none; then the log begins anew. What it cannot
// now, the next one does.
func (sqliteEngine) tidy(ctx context.Context, db *sql.DB) {
	_, _ = db.ExecContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)")
}

// listen: SQLite tells other processes nothing. They look twice a second.
func (sqliteEngine) listen(context.Context, func()) error { return nil }

// lock marks the file. Every writing transaction has the lock of the whole file from its begin.
func (sqliteEngine) lock(t *Tx) error {
	_, err := t.tx.ExecContext(t.ctx, fmt.Sprintf("PRAGMA application_id = %d", applicationID))
	return err
}

// schema leaves out the collation that SQLite has anyway, and cannot name.
func (sqliteEngine) schema(text string) string { return strings.ReplaceAll(text, ` COLLATE "C"`, "") }

// refused: the busy timeout has tried long enough.
func (sqliteEngine) refused(error) bool { return false }

func (sqliteEngine) lost(err error) bool { return errors.Is(err, driver.ErrBadConn) }

func (sqliteEngine) occupied(err error) bool {
	cause, ok := errors.AsType[*sqlite.Error](err)
	return ok && cause.Code()&0xff == sqlite3.SQLITE_BUSY
}

func (e sqliteEngine) explain(err error) error {
	cause, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return nil
	}
	switch cause.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return full(err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return &farm.Error{Kind: farm.Unavailable, Code: CodeStoreBusy,
			Message: "the database " + e.path + " is locked", Err: err,
			Hint: "another program writes to it; one server at a time may have a SQLite file"}
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return damaged(e.path, err)
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		return &farm.Error{Kind: farm.Unavailable, Code: CodeNoStore, Message: "use the database " + e.path, Err: err,
			Hint: "look at its disk, its directory and the rights on both"}
	}
	return nil
}

// sqliteConnector opens connections without the list of drivers that is global to the process.
type sqliteConnector struct{ dsn string }

func (c *sqliteConnector) Connect(context.Context) (driver.Conn, error) {
	return (&sqlite.Driver{}).Open(c.dsn)
}

func (c *sqliteConnector) Driver() driver.Driver { return &sqlite.Driver{} }
