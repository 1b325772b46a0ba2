package store

import (
	"context"
	"database/sql"
)

// engine is what differs between SQLite and PostgreSQL, beside how they are opened.
type engine interface {
	// prepares reports whether a text that is used several times in a transaction should be prepared: pgx does so
	// itself.
	prepares() bool
	// schema makes the text of a migration the engine's own.
	schema(text string) string
	// rewrite are the statements of Store.Rewrite, which no transaction is around.
	rewrite() []string
	// tables is a query for the names of all tables.
	tables() string
	// statements is the context of a transaction's statements, of the one that its caller gave.
	statements(ctx context.Context) context.Context
	// snapshot is how a transaction that only reads begins.
	snapshot() *sql.TxOptions
	// lock makes migrations of two servers that start together come one after the other.
	lock(t *Tx) error
	// announce notifies other processes of this transaction's commit.
	announce(t *Tx) error
	// listen calls each at commits of other processes, until ctx ends or the connection breaks. An engine that cannot
	// tell returns at once.
	listen(ctx context.Context, each func()) error
	// tidy is called now and then between two groups of Updates, when nobody writes.
	tidy(ctx context.Context, db *sql.DB)
	// refused reports whether an error is one after which nothing was done, and which a second try may not meet; lost
	// those of the connection.
	refused(err error) bool
	lost(err error) bool
	// occupied reports whether a begin failed because another process's transaction was in the way, after some
	// milliseconds.
	occupied(err error) bool
	// explain makes a farm.Error of the engine's, or nil when it knows nothing better than its text.
	explain(err error) error
}
