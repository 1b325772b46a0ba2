package gatewaytest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the gateway's table into "+page)

// page is where people read what gateways keep.
const page = "docs/internals/gateways.md"

// table is what a gateway keeps and what not, in Markdown.
func (g Gateway) table() string {
	var b strings.Builder
	b.WriteString("| feature | what it means | kept |\n|---|---|---|\n")
	for _, f := range features {
		kept := "yes"
		if f.asRoot && g.NoRoot {
			kept = "nothing of root is served"
		}
		if lack, ok := g.Lacks[f.name]; ok {
			kept = "no: " + lack.Why
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.name, f.means, kept)
	}
	return b.String()
}

// checkTable compares the section of the gateway in the page with its declaration.
func checkTable(t *testing.T, g Gateway) {
	path := filepath.Join(moduleRoot(t), page)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, section, ok := strings.Cut(string(text), "\n## "+g.Name+"\n")
	if !ok {
		t.Fatalf("%s has no section %q", page, g.Name)
	}
	section, rest, more := strings.Cut(section, "\n## ")
	intro, table, ok := strings.Cut(section, "\n| ")
	if want := g.table(); !ok || "| "+table != want {
		if !*update {
			t.Fatalf("%s does not have the table below; write it with -update\n%s", page, want)
		}
		if more {
			rest = "\n## " + rest
		}
		text := before + "\n## " + g.Name + "\n" + strings.TrimSuffix(intro, "\n") + "\n\n" + want + rest
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// moduleRoot is the directory of go.mod.
func moduleRoot(t *testing.T) string {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no go.mod above")
	return ""
}
