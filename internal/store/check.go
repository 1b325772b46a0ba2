package store

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/grange-project/grange/internal/farm"
)

// Checked is what a look at a whole database found.
type Checked struct {
	Revision                 int64
	VMs, Hosts, Objects, Log int   // rows; Log is of the audit log
	Steps, Todo              int64 // migrations that were done, and that the next start will do
}

func (c Checked) String() string {
	text := fmt.Sprintf("revision %d, %s, %s, %s", c.Revision, farm.Count(c.VMs, "VM"), farm.Count(c.Hosts, "host"),
		farm.Count(c.Log, "line")+" of the audit log")
	if c.Todo > 0 {
		text += fmt.Sprintf("; the next start of this release changes its tables (%d steps), make a backup before",
			c.Todo)
	}
	return text
}

// Check reads a whole database as a server would, and changes nothing. A server may run meanwhile. The first thing that
// is wrong is the error.
func Check(ctx context.Context, url string) (c Checked, err error) {
	if err := mustExist(url); err != nil {
		return Checked{}, err
	}
	s, err := connect(ctx, url, Options{})
	if err != nil {
		return Checked{}, err
	}
	defer s.Close()
	all, err := steps()
	if err != nil {
		return Checked{}, err
	}
	err = s.snapshot(ctx, func(t *Tx) error {
		if c.Steps, err = t.migrated(int64(len(all))); err != nil {
			return err
		}
		c.Todo = int64(len(all)) - c.Steps
		if err := t.checkTexts(); err != nil {
			return err
		}
		if c.Todo > 0 {
			return nil // what the columns mean is known when they are this release's
		}
		return t.checkRows(&c)
	})
	return c, err
}

// ReadSetting reads one named text of a database, and changes nothing.
func ReadSetting(ctx context.Context, url, name string) (text []byte, err error) {
	if err := mustExist(url); err != nil {
		return nil, err
	}
	s, err := connect(ctx, url, Options{})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	err = s.snapshot(ctx, func(t *Tx) error {
		text, err = t.Setting(name)
		return err
	})
	return text, err
}

// checkRows reads everything that a server reads.
func (t *Tx) checkRows(c *Checked) error {
	if err := t.row("SELECT revision FROM farm WHERE id = 1").Scan(&c.Revision); err != nil {
		return err
	}
	count := func(n *int, read func(scanner) error, text string) error {
		return t.each(func(r scanner) error { *n++; return read(r) }, text)
	}
	if err := count(&c.VMs, func(r scanner) error { _, err := scanVM(r); return err },
		"SELECT "+vmColumns+" FROM vms"); err != nil {
		return err
	}
	if err := count(&c.Hosts, func(r scanner) error { _, err := scanHost(r); return err },
		"SELECT "+hostColumns+" FROM hosts"); err != nil {
		return err
	}
	body := func(r scanner) error {
		var name, text string
		if err := r.Scan(&name, &text); err != nil {
			return err
		}
		var any map[string]any
		if err := decode(text, &any); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	if err := count(&c.Objects, body, "SELECT kind || ' ' || name, body FROM objects"); err != nil {
		return err
	}
	return count(&c.Log, body, "SELECT 'audit entry', body FROM entries")
}

// checkTexts looks for what PostgreSQL would not keep: somebody wrote to a SQLite file by hand.
func (t *Tx) checkTexts() error {
	tables, err := t.tables()
	if err != nil {
		return err
	}
	for _, table := range tables {
		rows, err := t.query("SELECT * FROM "+table, nil)
		if err != nil {
			return err
		}
		columns, err := rows.Columns()
		for err == nil && rows.Next() {
			err = checkValues(rows, table, columns)
		}
		if err == nil {
			err = rows.Err()
		}
		rows.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func checkValues(r scanner, table string, columns []string) error {
	values, to := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		to[i] = &values[i]
	}
	if err := r.Scan(to...); err != nil {
		return err
	}
	for i, v := range values {
		if s, ok := v.(string); ok && (!utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0) {
			return &farm.Error{Kind: farm.Invalid, Code: CodeBadText,
				Message: fmt.Sprintf("table %s, column %s: %.40q is not text in UTF-8", table, columns[i], s),
				Hint:    "somebody wrote it past the server; correct it with sqlite3, or take it out"}
		}
	}
	return nil
}
