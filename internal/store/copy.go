package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// Copied says what a copy has brought over.
type Copied struct {
	Rows     int   // of all tables
	Revision int64 // of the farm, as it is in the copy
}

// restoredRevisions is how far a restore raises the revision. Servers may have given out revisions after the backup, to
// people as ETags and to watchers: none of them may ever mean another state of the farm.
const restoredRevisions = 1 << 20

// Copy brings one snapshot of a farm into an empty database of either engine: every row, and the revision. Servers may
// run on from; what they write meanwhile is not in the copy. The tables stay those of the release that wrote them, and
// become newer when a server opens them. CodeNotEmpty: there is a farm in to already.
func Copy(ctx context.Context, from, to string) (Copied, error) {
	return transfer(ctx, from, to, func(*Tx) error { return nil })
}

// Backup copies a farm into a new SQLite file, which is there when it is whole, and not before.
func Backup(ctx context.Context, from, file string) (Copied, error) {
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return Copied{}, notEmpty(file)
	}
	dir, err := os.MkdirTemp(filepath.Dir(file), unfinished) // SQLite makes files beside its own
	if err != nil {
		return Copied{}, &farm.Error{Kind: farm.Unavailable, Code: CodeNoStore, Message: "write a backup to " + file,
			Err: err, Hint: "its directory must be there, and be writable"}
	}
	defer os.RemoveAll(dir)
	whole := filepath.Join(dir, "farm.db")
	copied, err := Copy(ctx, from, whole)
	if err != nil {
		return Copied{}, err
	}
	if err := publish(whole, file); err != nil {
		return Copied{}, &farm.Error{Kind: farm.Unavailable, Code: CodeNoStore,
			Message: "write a backup to " + file, Err: err}
	}
	return copied, nil
}

// publish gives a file its name, and returns when that outlives a power cut. It never replaces another file.
func publish(whole, file string) error {
	f, err := os.Open(whole)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close(), os.Link(whole, file)); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// SettingBooks is the setting with a name that each restore makes anew: records of usage that hosts have brought since
// the backup are not in it, and hosts bring them again to books of another name.
const SettingBooks = "usage-books"

// Books is that name, "" before the first restore.
func (t *Tx) Books() (name string, err error) {
	text, err := t.Setting(SettingBooks)
	if farm.IsCode(err, CodeAbsent) {
		return "", nil
	}
	if err == nil {
		err = json.Unmarshal(text, &name)
	}
	return name, err
}

// Restore brings a backup into an empty database. The revision is raised far beyond what it was, watchers list anew,
// and hosts bring their records of usage again.
func Restore(ctx context.Context, file, to string) (Copied, error) {
	return transfer(ctx, file, to, func(t *Tx) error {
		if err := t.PutSetting(SettingBooks, strconv.AppendQuote(nil, rand.Text())); err != nil {
			return err
		}
		if _, err := t.exec("UPDATE farm SET revision = revision + $1, feed_from = revision + $2 WHERE id = 1",
			restoredRevisions, restoredRevisions); err != nil {
			return err
		}
		if _, err := t.exec("UPDATE lease SET holder = ''"); err != nil {
			return err
		}
		_, err := t.exec("DELETE FROM changes")
		return err
	})
}

func notEmpty(where string) error {
	return &farm.Error{Kind: farm.Conflict, Code: CodeNotEmpty, Message: where + " is there already, and not empty",
		Hint: "name a new file, or an empty database"}
}

// transfer copies, and lets after change the copy before anybody sees it.
func transfer(ctx context.Context, from, to string, after func(*Tx) error) (copied Copied, err error) {
	if err := mustExist(from); err != nil {
		return Copied{}, err
	}
	source, err := connect(ctx, from, Options{})
	if err != nil {
		return Copied{}, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	target, err := connect(ctx, to, Options{})
	if err != nil {
		return Copied{}, err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	err = source.snapshot(ctx, func(in *Tx) error {
		copied, err = target.fill(ctx, in, to, after)
		return err
	})
	return copied, err
}

// mustExist refuses a SQLite file that is not there, which to open would make.
func mustExist(url string) error {
	if isPostgres(url) {
		return nil
	}
	path := strings.TrimPrefix(url, "sqlite:")
	if _, err := os.Stat(path); err != nil {
		return &farm.Error{Kind: farm.NotFound, Code: CodeNoStore, Message: "no database " + path, Err: err,
			Hint: "look for its name in the server's configuration: store"}
	}
	return nil
}

// snapshot runs do on one snapshot of a database whose tables may be of another release.
func (s *Store) snapshot(ctx context.Context, do func(*Tx) error) error {
	tx, err := s.read.BeginTx(ctx, s.engine.snapshot())
	if err != nil {
		return s.explain(ctx, err)
	}
	defer tx.Rollback()
	return s.explain(ctx, do(newTx(&sqlTx{ctx: ctx, asked: ctx, store: s, tx: tx, shared: &shared{}})))
}

// fill copies a snapshot into this empty database, all in one transaction.
func (s *Store) fill(ctx context.Context, in *Tx, name string, after func(*Tx) error) (Copied, error) {
	all, err := steps()
	if err != nil {
		return Copied{}, err
	}
	done, err := in.migrated(int64(len(all)))
	if err != nil {
		return Copied{}, err
	}
	tx, err := s.beginWrite(ctx)
	if err != nil {
		return Copied{}, s.explain(ctx, err)
	}
	defer tx.Rollback()
	out := newTx(&sqlTx{ctx: ctx, asked: ctx, store: s, tx: tx, shared: &shared{}})
	copied, err := s.fillIn(in, out, all[:done], name)
	if err == nil {
		err = after(out)
	}
	if err == nil {
		err = out.row("SELECT revision FROM farm WHERE id = 1").Scan(&copied.Revision)
	}
	if err == nil {
		err = tx.Commit()
	}
	return copied, s.explain(ctx, err)
}

func (s *Store) fillIn(in, out *Tx, done []migration, name string) (copied Copied, err error) {
	if err := s.migrateIn(out, done); err != nil {
		return Copied{}, err
	}
	tables, err := in.tables()
	if err != nil {
		return Copied{}, err
	}
	used, err := out.inUse()
	if err != nil {
		return Copied{}, err
	}
	if used {
		return Copied{}, notEmpty(name)
	}
	for _, table := range tables {
		n, err := copyTable(in, out, table)
		if err != nil {
			return Copied{}, fmt.Errorf("copy table %s: %w", table, err)
		}
		copied.Rows += n
	}
	return copied, nil
}

// inUse reports whether anybody has written to the farm ever.
func (t *Tx) inUse() (used bool, err error) {
	err = t.row("SELECT revision <> 0 FROM farm WHERE id = 1").Scan(&used)
	return used, err
}

// tables are the names of all tables but migrations, in order.
func (t *Tx) tables() ([]string, error) {
	var names []string
	err := t.each(func(r scanner) error {
		var name string
		err := r.Scan(&name)
		names = append(names, name)
		return err
	}, t.store.engine.tables())
	if err != nil {
		return nil, err
	}
	i := slices.Index(names, "migrations")
	if i < 0 {
		return nil, &farm.Error{Kind: farm.Invalid, Code: CodeNotAFarm,
			Message: "the database is empty: no farm in it",
			Hint:    "look for its name in the server's configuration: store"}
	}
	return slices.Delete(names, i, i+1), nil
}

// migrated is how many steps the tables have seen, at most known.
func (t *Tx) migrated(known int64) (done int64, err error) {
	if _, err := t.tables(); err != nil {
		return 0, err
	}
	if err := t.row("SELECT COALESCE(MAX(number), 0) FROM migrations").Scan(&done); err != nil {
		return 0, err
	}
	if done > known {
		return 0, later(done, known)
	}
	return done, nil
}

// copyTable copies all rows, whatever the columns are: they are texts and numbers on both sides.
func copyTable(in, out *Tx, table string) (n int, err error) {
	if _, err := out.exec("DELETE FROM " + table); err != nil { // what the migration put there
		return 0, err
	}
	rows, err := in.query("SELECT * FROM "+table, nil)
	if err != nil {
		return 0, in.store.explain(in.ctx, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return 0, err
	}
	for ; rows.Next(); n++ {
		if err := copyRow(rows, out, table, columns); err != nil {
			return n, err
		}
	}
	return n, in.store.explain(in.ctx, rows.Err())
}

func copyRow(row *sql.Rows, out *Tx, table string, columns []string) error {
	values, to, marks := make([]any, len(columns)), make([]any, len(columns)), make([]string, len(columns))
	for i := range values {
		to[i], marks[i] = &values[i], fmt.Sprintf("$%d", i+1)
	}
	if err := row.Scan(to...); err != nil {
		return err
	}
	_, err := out.exec("INSERT INTO "+table+" ("+strings.Join(columns, ", ")+") VALUES ("+strings.Join(marks, ", ")+")",
		values...)
	return err
}
