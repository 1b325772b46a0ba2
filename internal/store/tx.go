package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/grange-project/grange/internal/farm"
)

// Tx is a transaction. Lookups that find nothing fail with farm.NotFound. Lists are in the order of their names or IDs,
// byte by byte. It is not safe for several goroutines, and is dead when the function that was given it returns.
type Tx struct {
	*sqlTx
	farmRows
	accountRows
	sessionRows
	hostRows
	vmRows
	orderRows
	auditRows
	feedRows
	usageRows
	incidentRows
	jobRows
	findingRows
	placeRows
	outsideRows
}

func newTx(t *sqlTx) *Tx {
	return &Tx{t, farmRows{t}, accountRows{t}, sessionRows{t}, hostRows{t}, vmRows{t}, orderRows{t}, auditRows{t},
		feedRows{t}, usageRows{t}, incidentRows{t}, jobRows{t}, findingRows{t},
		placeRows{t}, outsideRows{t}}
}

// sqlTx runs statements in a transaction of the database, and knows what they have changed.
type sqlTx struct {
	ctx      context.Context // of its statements
	asked    context.Context // of who wants it: nothing is begun for one who has gone
	store    *Store
	tx       *sql.Tx
	revision int64
	wrote    bool
	changes  []Change
	entered  map[string]*farm.VM   // that were inserted, by ID
	used     map[string]farm.Quota // what VMs hold more than before, by project
	told     map[string]bool       // projects whose hosts look at their security groups anyway
	onEnd    []func(error)
	shared   *shared
	kept     *statements // of its database; nil: none
	err      error       // the first of the database: the transaction cannot be committed any more
}

// shared is what the Txs of one transaction of the database have in common.
type shared struct {
	prepared map[string]*sql.Stmt
	first    int64 // revision of the first that writes
	written  []*Tx // in the order of their revisions
	epoch    int64 // of the lease, which nobody else takes meanwhile; 0: nobody has looked
}

// Revision is the one that this Update writes, or the one that this View sees: watch from there.
func (t *Tx) Revision() int64 { return t.revision }

// OnEnd has f called when it is known what has become of an Update's transaction: with nil when it is committed, before
// the next one begins; with an error otherwise, of CodeUnsure when that is not known. f must be quick, and
// begin no transaction.
func (t *Tx) OnEnd(f func(error)) { t.onEnd = append(t.onEnd, f) }

// ended notifies those of the end who have not been notified.
func (t *Tx) ended(err error) {
	for _, f := range t.onEnd {
		f(err)
	}
	t.onEnd = nil
}

// OnlyVMsSince reports that since a revision surely nothing but VMs was changed of what this Update sees, without
// asking the database.
func (t *Tx) OnlyVMsSince(revision int64) bool {
	base := t.shared.first - 1
	return onlyVMs(t.changes) && !slices.ContainsFunc(t.shared.written,
		func(o *Tx) bool { return !onlyVMs(o.changes) }) && t.store.recent.onlyVMs(revision, base)
}

func onlyVMs(changes []Change) bool {
	return !slices.ContainsFunc(changes, func(c Change) bool { return c.Kind != KindVM })
}

// scanner is a row.
type scanner interface{ Scan(to ...any) error }

// row is a row whose error the transaction remembers.
type row struct {
	t   *sqlTx
	row *sql.Row
	err error
}

// Scan fails with sql.ErrNoRows when there is none.
func (r row) Scan(to ...any) error {
	if r.err != nil {
		return r.err
	}
	err := r.row.Scan(to...)
	if errors.Is(err, sql.ErrNoRows) {
		return err
	}
	return r.t.failed(err)
}

// failed remembers the first error of the database.
func (t *sqlTx) failed(err error) error {
	if err != nil && t.err == nil {
		t.err = err
	}
	return err
}

// stmt is a text prepared for this transaction, where the engine does not keep prepared texts itself.
func (t *sqlTx) stmt(text string) (*sql.Stmt, error) {
	if s := t.shared.prepared[text]; s != nil {
		return s, nil
	}
	var err error
	s := (*sql.Stmt)(nil)
	if t.kept != nil {
		s = t.kept.of(t.ctx, t.tx, text)
	}
	if s == nil {
		s, err = t.tx.PrepareContext(t.ctx, text)
	}
	if err != nil {
		return nil, t.failed(err)
	}
	if t.shared.prepared == nil {
		t.shared.prepared = map[string]*sql.Stmt{}
	}
	t.shared.prepared[text] = s
	return s, nil
}

func (t *sqlTx) row(text string, args ...any) row {
	if err := t.may(args); err != nil {
		return row{err: err}
	}
	if !t.store.engine.prepares() {
		return row{t: t, row: t.tx.QueryRowContext(t.ctx, text, args...)}
	}
	s, err := t.stmt(text)
	if err != nil {
		return row{err: err}
	}
	return row{t: t, row: s.QueryRowContext(t.ctx, args...)}
}

// each calls read with every row.
func (t *sqlTx) each(read func(scanner) error, text string, args ...any) error {
	if err := t.may(args); err != nil {
		return err
	}
	rows, err := t.query(text, args)
	if err != nil {
		return t.failed(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := t.asked.Err(); err != nil {
			return t.failed(err)
		}
		if err := read(rows); err != nil {
			return err
		}
	}
	return t.failed(rows.Err())
}

func (t *sqlTx) query(text string, args []any) (*sql.Rows, error) {
	if !t.store.engine.prepares() {
		return t.tx.QueryContext(t.ctx, text, args...)
	}
	s, err := t.stmt(text)
	if err != nil {
		return nil, err
	}
	return s.QueryContext(t.ctx, args...)
}

// exec writes, and tells how many rows that were.
func (t *sqlTx) exec(text string, args ...any) (int64, error) {
	if err := t.may(args); err != nil {
		return 0, err
	}
	result, err := t.execute(text, args)
	if err != nil {
		return 0, t.failed(err)
	}
	n, err := result.RowsAffected()
	if n > 0 {
		t.wrote = true
	}
	return n, t.failed(err)
}

func (t *sqlTx) execute(text string, args []any) (sql.Result, error) {
	if !t.store.engine.prepares() {
		return t.tx.ExecContext(t.ctx, text, args...)
	}
	s, err := t.stmt(text)
	if err != nil {
		return nil, err
	}
	return s.ExecContext(t.ctx, args...)
}

// may refuses statements for somebody who has gone, and with text that is none.
func (t *sqlTx) may(args []any) error {
	if err := t.asked.Err(); err != nil {
		return t.failed(err)
	}
	return checkText(args)
}

// checkText refuses text that PostgreSQL cannot keep. SQLite would, and the farm could not be copied any more.
func checkText(args []any) error {
	for _, a := range args {
		if s, ok := a.(string); ok && (!utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0) {
			return &farm.Error{Kind: farm.Invalid, Code: CodeBadText,
				Message: fmt.Sprintf("%.40q is not text in UTF-8", s),
				Hint:    "names and notes are UTF-8 without zero bytes"}
		}
	}
	return nil
}

// absent is the error of a lookup that found nothing.
func absent(what, name string) error {
	return &farm.Error{Kind: farm.NotFound, Code: CodeAbsent, Message: fmt.Sprintf("no %s %q", what, name)}
}

// found turns the error of a lookup into one that says what was not there.
func found(err error, what, name string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return absent(what, name)
	}
	return err
}

// must turns a write of no row into NotFound.
func must(n int64, err error, what, name string) error {
	if err == nil && n == 0 {
		return absent(what, name)
	}
	return err
}

// encode is v as JSON; one that says nothing is short, for a VM begins with two of them and every byte of a row is
// written many times.
func encode(v any) (string, error) {
	if r := reflect.ValueOf(v); r.Kind() == reflect.Struct && r.IsZero() {
		return "{}", nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("store: write %T: %w", v, err)
	}
	return string(text), nil
}

// decode reads JSON that a release up to this one has written.
func decode(text string, into any) error {
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return fmt.Errorf("store: read %T: %w", into, err)
	}
	return nil
}

// stamp is a time as it is stored: nanoseconds since 1970, 0 for the zero time.
func stamp(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixNano()
}

func unstamp(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

func number(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
