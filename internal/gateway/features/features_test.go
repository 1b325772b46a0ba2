package features

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

var update = flag.Bool("update", false, "write the table into "+page)

// page is where people read what gateways keep, between two lines that mark the table.
const (
	page  = "../../../docs/guide/files.md"
	begin = "<!-- features: go test ./internal/gateway/features -update -->\n"
	end   = "<!-- end -->\n"
)

// TestTable compares the page with the list.
func TestTable(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	table, after, more := strings.Cut(rest, end)
	if !ok || !more {
		t.Fatalf("%s has no place for the table", page)
	}
	if want := markdown(); table != want {
		if !*update {
			t.Fatalf("%s does not have the table below; write it with -update\n%s", page, want)
		}
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func markdown() string {
	head, line := "| feature | what it means |", "|---|---|"
	for _, g := range Gateways {
		head, line = head+" "+string(g.Name)+" |", line+"---|"
	}
	var b strings.Builder
	fmt.Fprintln(&b, head+"\n"+line)
	for _, f := range All {
		fmt.Fprintf(&b, "| `%s` | %s |", f.Name, f.Means)
		for _, g := range Gateways {
			kept := "yes"
			if lack, ok := g.Lacks[f.Name]; ok {
				kept = "no: " + lack.Why
			}
			fmt.Fprintf(&b, " %s |", kept)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestLists: every gateway that binds may have is here, and lacks nothing that is no feature or that hosts rest on.
func TestLists(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range All {
		if seen[f.Name] || f.Means == "" || strings.ContainsAny(f.Name, ",:|") || strings.ContainsAny(f.Means, "|\n") {
			t.Errorf("%s: %q", f.Name, f.Means)
		}
		seen[f.Name] = true
	}
	for _, name := range farm.Gateways {
		if !slices.ContainsFunc(Gateways, func(g Gateway) bool { return g.Name == name }) {
			t.Errorf("what %s keeps is not known", name)
		}
	}
	for _, g := range Gateways {
		for name, lack := range g.Lacks {
			i := slices.IndexFunc(All, func(f Feature) bool { return f.Name == name })
			if i < 0 || All[i].Must || lack.Why == "" || strings.ContainsAny(lack.Why, "|\n") {
				t.Errorf("%s lacks %q: %q", g.Name, name, lack.Why)
			}
			if _, err := regexp.Compile(lack.Seen); err != nil || lack.Seen == "" {
				t.Errorf("%s lacks %q: %q, %v", g.Name, name, lack.Seen, err)
			}
		}
	}
}

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		bind  string
		want  farm.Gateway
		error string
	}{
		{"/d", "", ""},
		{"/d:gateway=virtiofs", farm.Virtiofs, ""},
		{"/d:needs=locks,rights", "", ""},
		{"/d:gateway=auto:needs=locks", farm.AnyGateway, ""},
		{"/d:needs=xattrs", farm.AnyGateway, ""},
		{"/d:needs=umask", farm.Virtiofs, ""},
		{"/d:gateway=auto:needs=umask,locks", farm.Virtiofs, ""},
		{"/d:needs=mounts-below", farm.FUSE, ""},
		{"/d:gateway=fuse:needs=umask", "", `does not keep: umask \(.*\); these do: \[virtiofs sftp\]`},
		{"/d:gateway=virtiofs:needs=mounts-below", "", `does not keep: mounts-below \(.*\); these do: \[fuse\]`},
		{"/d:needs=locks-shared", "", "no gateway keeps all .*virtiofs lacks locks-shared.*fuse lacks locks-shared"},
		{"/d:gateway=fuse:needs=locks-shared", "", "no other does"},
		{"/d:needs=umask,mounts-below", "", "no gateway keeps all"},
		{"/d:needs=set-id", "", "no gateway keeps all"},
		{"/d:suid:needs=set-id", farm.FUSE, ""},
		{"/d:suid:needs=umask", "", "virtiofs lacks suid and dev"},
		{"/d:needs=posix", "", `there is no feature "posix"`},
	} {
		b, err := farm.ParseBind(c.bind)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Choose(b)
		switch {
		case c.error == "" && (err != nil || got != c.want):
			t.Errorf("%s: %q, %v", c.bind, got, err)
		case c.error != "" && (!farm.IsCode(err, CodeLacks) || !regexp.MustCompile(c.error).MatchString(err.Error())):
			t.Errorf("%s: %q, %v", c.bind, got, err)
		}
	}
}
