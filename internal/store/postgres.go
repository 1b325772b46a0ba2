package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/turns"
)

// Limits of connections of one server. Writers wait for each other in the database, so that more than a few gain
// nothing.
const (
	writers        = 4
	snapshots      = 12
	connectTimeout = 10 * time.Second
	// statementTimeout ends what a lost connection or a forgotten session would hold for ever.
	statementTimeout = time.Minute
)

// oldestPostgres is the oldest release that is tested, as server_version_num has it.
const oldestPostgres = 130000

// channel is what servers notify each other by.
const channel = "grange"

// migrationLock is the key of the advisory lock under which tables are made: "grange" as a number.
const migrationLock = 0x6772616e6765

// postgresEngine is PostgreSQL: several servers, one database.
type postgresEngine struct {
	config *pgx.ConnConfig
}

func (s *Store) openPostgres(ctx context.Context, url string) error {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		// The text of the error may hold the password.
		return &farm.Error{Kind: farm.Invalid, Code: CodeNoStore,
			Message: "the URL of the database cannot be understood",
			Hint: "write postgres://USER@HOST/DATABASE; percent-encode what is special in a password, or leave it to " +
				"~/.pgpass"}
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	for name, value := range map[string]string{
		"application_name":                    "grange",
		"timezone":                            "UTC",
		"statement_timeout":                   fmt.Sprint(statementTimeout.Milliseconds()),
		"idle_in_transaction_session_timeout": fmt.Sprint(statementTimeout.Milliseconds()),
		"synchronous_commit":                  "on", // what was answered outlives a power cut
	} {
		config.RuntimeParams[name] = value
	}
	engine := postgresEngine{config}
	s.engine = engine
	s.write, s.read = stdlib.OpenDB(*config), stdlib.OpenDB(*config)
	s.write.SetMaxOpenConns(writers)
	s.write.SetMaxIdleConns(writers)
	s.read.SetMaxOpenConns(snapshots)
	s.read.SetMaxIdleConns(snapshots)
	s.People = turns.New(snapshots-1, snapshots/2)
	for _, db := range []*sql.DB{s.write, s.read} {
		db.SetConnMaxLifetime(time.Hour)
		db.SetConnMaxIdleTime(10 * time.Minute)
	}
	return s.explain(ctx, engine.check(ctx, s.read))
}

// check refuses a database that could not keep a farm.
func (e postgresEngine) check(ctx context.Context, db *sql.DB) error {
	var version int
	var encoding string
	var others bool
	err := db.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::INT, current_setting('server_encoding'),
		to_regclass('migrations') IS NULL AND EXISTS (SELECT FROM pg_tables WHERE schemaname = current_schema())`).Scan(&version, &encoding, &others)
	switch {
	case err != nil:
		return err
	case version < oldestPostgres:
		return &farm.Error{Kind: farm.Invalid, Code: CodeNoStore,
			Message: fmt.Sprintf("PostgreSQL %d is too old", version/10000),
			Hint:    fmt.Sprintf("PostgreSQL %d is the oldest that is tested", oldestPostgres/10000)}
	case encoding != "UTF8":
		return badEncoding(e.config.Database, encoding)
	case others:
		return &farm.Error{Kind: farm.Invalid, Code: CodeNotAFarm,
			Message: "the database " + e.config.Database + " has tables of something else",
			Hint:    "make one for the farm: createdb -E UTF8 -T template0 grange"}
	}
	return nil
}

// prepares: pgx keeps the texts of each connection prepared.
func (postgresEngine) prepares() bool { return false }
func (postgresEngine) tables() string {
	return "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY tablename"
}

// schema leaves out what only SQLite knows.
func (postgresEngine) schema(text string) string {
	return strings.ReplaceAll(text, " WITHOUT ROWID", "")
}

func (postgresEngine) statements(ctx context.Context) context.Context { return ctx }

// snapshot: every statement of the transaction sees the same commits. A transaction that writes has READ COMMITTED
// instead, for it must see all that was written before it got the lock of the farm's row; with that lock nobody else
// writes.
func (postgresEngine) snapshot() *sql.TxOptions {
	return &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
}

func (postgresEngine) lock(t *Tx) error {
	_, err := t.tx.ExecContext(t.ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock))
	return err
}

func (postgresEngine) announce(t *Tx) error {
	_, err := t.tx.ExecContext(t.ctx, "SELECT pg_notify($1, '')", channel)
	return err
}

// tidy: PostgreSQL has processes for that.
func (postgresEngine) tidy(context.Context, *sql.DB) {}

// refused: serialization_failure, deadlock_detected, and servers that are starting, stopping or full.
func (postgresEngine) refused(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch e.Code {
		case "40001", "40P01", "53300", "57P01", "57P02", "57P03":
			return true
		}
		return false
	}
	return pgconn.SafeToRetry(err)
}

func (postgresEngine) lost(err error) bool {
	if _, answered := errors.AsType[*pgconn.PgError](err); answered {
		return false
	}
	if _, broken := errors.AsType[net.Error](err); broken {
		return true
	}
	if _, unreached := errors.AsType[*pgconn.ConnectError](err); unreached {
		return true
	}
	return pgconn.SafeToRetry(err) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF)
}

// occupied: PostgreSQL's transactions wait for a row, and not to begin.
func (postgresEngine) occupied(error) bool { return false }

func (e postgresEngine) explain(err error) error {
	cause, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return nil
	}
	class := cause.Code
	if len(class) > 2 {
		class = class[:2]
	}
	unavailable := func(message, hint string) error {
		return &farm.Error{Kind: farm.Unavailable, Code: CodeNoStore, Message: message, Hint: hint, Err: err}
	}
	switch {
	case cause.Code == "53100":
		return full(err)
	case class == "28":
		return unavailable("PostgreSQL refuses the user "+e.config.User,
			"look at pg_hba.conf, and at the password in ~/.pgpass")
	case class == "3D":
		return unavailable("PostgreSQL has no database "+e.config.Database,
			"make it: createdb -E UTF8 -T template0 "+e.config.Database)
	case cause.Code == "42501", class == "3F":
		return unavailable("PostgreSQL lets the user "+e.config.User+" not use the tables",
			"the user must own the database, or its schema")
	case class == "08", class == "53", class == "57", class == "58":
		return unavailable("PostgreSQL does not serve now", "see its log; what runs on the hosts goes on without it")
	case class == "40":
		return &farm.Error{Kind: farm.Unavailable, Code: CodeStoreBusy, Message: "the database is busy",
			Hint: "try again", Err: err}
	case class == "XX":
		return damaged(e.config.Database, err)
	}
	return nil
}

// listen calls each at every commit of anybody, until ctx ends or the connection breaks.
func (e postgresEngine) listen(ctx context.Context, each func()) error {
	conn, err := pgx.ConnectConfig(ctx, e.listener())
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		conn.Close(end)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	each() // what was written before the LISTEN
	for {
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err
		}
		each()
	}
}

// listener is a connection that waits for as long as it likes.
func (e postgresEngine) listener() *pgx.ConnConfig {
	c := e.config.Copy()
	delete(c.RuntimeParams, "idle_in_transaction_session_timeout")
	return c
}
