package store

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// boundOfTable says for each table what keeps callers from filling it. Objects have a line for each kind below.
var boundOfTable = map[string]string{
	"farm":             "one row",
	"lease":            "one row",
	"migrations":       "one row for each release that changed the tables",
	"objects":          "by kind, see boundOfKind",
	"changes":          "the feed keeps recent revisions; each is a change, and a user makes one a second",
	"vms":              "quota of the project, or farm.MaxVMs without one (TestBoundWithoutQuota)",
	"used":             "one row for each project",
	"hosts":            "one row for each host; a host joins by a token of an administrator",
	"subjects":         "100 for each user, by the route that changes users",
	"entries":          "one for each change, and refusals in buckets (TestRefusalsAreBounded); kept for 400 days",
	"answers":          "10,000 of each user, for a day (TestAnswersAreBounded)",
	"sessions":         "50 of each user (TestSessionsAreBounded); each sign-in is a change",
	"usage_records":    "hosts bring them, and are held to what they can have run (TestOutsideIsBounded)",
	"usage_hours":      "one row for each host and day of its records",
	"incidents":        "by opener, project and in all (TestBounds)",
	"incident_entries": "500 of an incident (TestBounds)",
	"incident_words":   "what 100 things and links of an incident are called (TestBounds)",
	"host_jobs":        "fleet.MaxHostJobs of each host",
	"finding_changes":  "changes of findings of one host; the old ones are pruned",
	"places":           "one for each stay of a VM; kept as long as records; each VM is part of a change",
}

// boundOfKind says the same for each kind of object.
var boundOfKind = map[string]string{
	"vm":             "a table of its own",
	"host":           "a table of its own",
	"cell":           "administrators declare them in a file of 16 MiB",
	"project":        "administrators declare them in a file of 16 MiB",
	"shape":          "administrators declare them in a file of 16 MiB",
	"network":        "administrators declare them in a file of 16 MiB",
	"mapping":        "administrators declare them in a file of 16 MiB",
	"score":          "administrators declare them in a file of 16 MiB",
	"setting":        "the server's own names",
	"group":          "farm.MaxServerGroups of a project (TestBoundOfGroups)",
	"security-group": "farm.MaxSecurityGroups of a project (TestBoundOfGroups)",
	"user":           "administrators and issuers make them; one for each login",
	"grant":          "one for each user, role, project and cell that are there",
	"token":          "100 of each user (TestTokensAreBounded)",
	"join-token":     "1,000 of each maker (TestJoinTokensAreBounded)",
	"stream":         "32 of each user, 512 of a server; each ends with its request (TestStreams)",
	"stranger":       "hostlink.MaxOrphans of each host",
	"move":           "one for each VM",
	"image":          "administrators add them; their files have a bound (TestUploadRefused)",
	"image-name":     "administrators add them",
	"image-order":    "100 of each user, of which 50 are open (TestImageOrdersAreBounded)",
	"image-task":     "one for each order and host",
}

// TestTablesHaveBounds: each table, and each kind of object, names what keeps callers from filling it.
func TestTablesHaveBounds(t *testing.T) {
	s := inside(t)
	rows, err := s.read.Query(s.engine.tables())
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var tables []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		tables = append(tables, name)
	}
	slices.Sort(tables)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(boundOfTable)), tables); diff != "" {
		t.Errorf("tables with a bound, and those that there are: %s", diff)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(boundOfKind)), kinds(t)); diff != "" {
		t.Errorf("kinds with a bound, and those that there are: %s", diff)
	}
	there := tests(t)
	for _, bounds := range []map[string]string{boundOfTable, boundOfKind} {
		for of, text := range bounds {
			for _, name := range testName.FindAllString(text, -1) {
				if !strings.Contains(there, "func "+name+"(") {
					t.Errorf("%s: there is no test %s", of, name)
				}
			}
		}
	}
}

var testName = regexp.MustCompile(`Test[A-Za-z]+`)

// tests are all tests of the server's packages.
func tests(t *testing.T) (text string) {
	t.Helper()
	for _, pattern := range []string{"*_test.go", "../*/*_test.go", "../server/*/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			one, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text += string(one)
		}
	}
	return text
}

// kinds are the values of all constants of type Kind.
func kinds(t *testing.T) (all []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, kindsIn(t, file)...)
	}
	slices.Sort(all)
	return all
}

func kindsIn(t *testing.T, file *ast.File) (all []string) {
	t.Helper()
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, named := v.Type.(*ast.Ident); !named || kind.Name != "Kind" {
			return true
		}
		for _, value := range v.Values {
			text, err := strconv.Unquote(value.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, text)
		}
		return true
	})
	return all
}
