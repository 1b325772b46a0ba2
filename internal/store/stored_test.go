package store_test

import (
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/store/storetest"
)

var update = flag.Bool("update", false, "write what is stored to testdata")

// TestStoredForm: databases keep domain types as JSON, by the names of their fields. A field that is renamed or gets
// another type is lost from every database that there is: it needs a migration that changes the JSON too. New fields
// are fine.
func TestStoredForm(t *testing.T) {
	path := filepath.Join(t.TempDir(), "farm.db")
	came := func() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }
	s, err := store.OpenWith(t.Context(), path, store.Options{Clock: came})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(t.Context(), storetest.Fill); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	got := dump(t, path)
	const file = "testdata/stored.golden"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("another form than in %s; with a migration, or when fields were only added: go test "+
			"./internal/store -run StoredForm -update\n%s", file, d)
	}
}

// dump is every row of the tables that hold JSON, one value a line.
func dump(t *testing.T, path string) string {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var out strings.Builder
	for _, table := range []string{"vms", "hosts", "objects", "entries", "answers", "subjects", "incidents",
		"incident_entries", "incident_words"} {
		rows, err := db.Query("SELECT * FROM " + table)
		if err != nil {
			t.Fatal(err)
		}
		columns, err := rows.Columns()
		for err == nil && rows.Next() {
			err = dumpRow(&out, rows, table, columns)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

func dumpRow(out *strings.Builder, r *sql.Rows, table string, columns []string) error {
	values, to := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		to[i] = &values[i]
	}
	if err := r.Scan(to...); err != nil {
		return err
	}
	for i, v := range values {
		var pretty any
		if text, ok := v.(string); ok && json.Unmarshal([]byte(text), &pretty) == nil {
			if indented, err := json.MarshalIndent(pretty, "", "  "); err == nil {
				v = string(indented)
			}
		}
		fmt.Fprintf(out, "%s.%s = %v\n", table, columns[i], v)
	}
	return nil
}
