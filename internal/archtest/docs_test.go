package archtest

import (
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
)

// codes finds every constant of type farm.Code.
func codes(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, s := range sources(t) {
		for _, d := range s.ast.Decls {
			group, ok := d.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				v := spec.(*ast.ValueSpec)
				if !isCode(v.Type) {
					continue
				}
				for _, value := range v.Values {
					text, err := strconv.Unquote(value.(*ast.BasicLit).Value)
					if err != nil {
						t.Fatal(err)
					}
					if other, ok := found[text]; ok {
						t.Errorf("code %s is declared in %s and in %s", text, other, s.path)
					}
					found[text] = s.path
				}
			}
		}
	}
	return found
}

func isCode(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "Code"
	case *ast.SelectorExpr:
		return e.Sel.Name == "Code"
	}
	return false
}

var errorHeading = regexp.MustCompile("(?m)^### `([a-z-]+)`$")

func TestEveryErrorIsExplained(t *testing.T) {
	declared, text := codes(t), read(t, "docs/errors.md")
	explained := map[string]bool{}
	headings := errorHeading.FindAllStringSubmatchIndex(text, -1)
	for i, h := range headings {
		end := len(text)
		if i+1 < len(headings) {
			end = headings[i+1][0]
		}
		code := text[h[2]:h[3]]
		explained[code] = true
		if _, ok := declared[code]; !ok {
			t.Errorf("docs/errors.md explains %s, which no package declares", code)
		}
		if paragraph := strings.TrimSpace(text[h[1]:end]); len(paragraph) < 80 {
			t.Errorf("docs/errors.md says too little of %s: what it means, the likely cause, what to do", code)
		}
	}
	for _, code := range slices.Sorted(maps.Keys(declared)) {
		if !explained[code] {
			t.Errorf("docs/errors.md has no paragraph \"### `%s`\", which %s declares", code, declared[code])
		}
	}
}

func TestEveryPackageIsListed(t *testing.T) {
	text := read(t, "docs/internals/packages.md")
	seen := map[string]bool{}
	for _, s := range sources(t) {
		name, internal := strings.CutPrefix(s.pkg, "internal/")
		if seen[s.pkg] || !internal || s.test {
			continue
		}
		seen[s.pkg] = true
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/internals/packages.md does not name `%s`", name)
		}
	}
	text += read(t, "docs/architecture.md")
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z][a-z/]*)` \\|").FindAllStringSubmatch(text, -1) {
		if _, err := os.Stat(filepath.Join(top, "internal", m[1])); err != nil {
			t.Errorf("a page has a line for `%s`, which is no package", m[1])
		}
	}
}

var (
	makeCall   = regexp.MustCompile("(?m)(?:^\\s*|`)make ([a-z][a-z0-9-]*)")
	makeTarget = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
	link       = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)
)

func TestDocumentsPointAtWhatExists(t *testing.T) {
	targets := map[string]bool{}
	for _, m := range makeTarget.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	walk(t, ".md", func(path string, text []byte) {
		for _, m := range makeCall.FindAllStringSubmatch(string(text), -1) {
			if !targets[m[1]] {
				t.Errorf("%s says make %s, which is not in the Makefile", path, m[1])
			}
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(top, filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", path, m[1])
			}
		}
	})
}

// notAgents are files of internal/config that read what is no agent's.
var notAgents = []string{"client", "server", "issuer"}

// keys are those of the agent's configuration, from the tags of internal/config.
func keys(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, s := range sources(t) {
		if s.pkg != "internal/config" || s.test ||
			slices.ContainsFunc(notAgents, func(n string) bool { return strings.HasPrefix(filepath.Base(s.path), n) }) {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if f, ok := n.(*ast.Field); ok && f.Tag != nil {
				found = append(found, reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("toml"))
			}
			return true
		})
	}
	slices.Sort(found)
	return slices.Compact(found)
}

var keyRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|")

// serverKeys are those of a server's configuration.
func serverKeys(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, s := range sources(t) {
		if s.path == "internal/config/server.go" {
			ast.Inspect(s.ast, func(n ast.Node) bool {
				if f, ok := n.(*ast.Field); ok && f.Tag != nil {
					found = append(found, reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("toml"))
				}
				return true
			})
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func TestEveryKeyOfTheServerIsExplained(t *testing.T) {
	var explained []string
	for _, m := range keyRow.FindAllStringSubmatch(read(t, "docs/guide/server.md"), -1) {
		explained = append(explained, m[1])
	}
	slices.Sort(explained)
	if d := cmp.Diff(serverKeys(t), explained); d != "" {
		t.Errorf("the rows of docs/guide/server.md are not the keys of internal/config/server.go:\n%s", d)
	}
	text := read(t, "packaging/server.toml")
	for _, key := range serverKeys(t) {
		if !regexp.MustCompile(`(?m)^#(` + key + ` = |\[` + key + `\b)`).MatchString(text) {
			t.Errorf("packaging/server.toml does not show %s", key)
		}
	}
	want, err := config.ParseServer(nil, "nothing")
	if err != nil {
		t.Fatal(err)
	}
	got, err := config.ParseServer(commented.ReplaceAll([]byte(text), []byte("$1")), "server.toml")
	if err != nil {
		t.Fatal(err)
	}
	// examples of what has no default
	got.Brokers, got.People, got.FileSystems, got.Issuers, got.Usage.VOs = nil, nil, nil, nil, nil
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("what the example says of defaults is not so:\n%s", d)
	}
}

var commented = regexp.MustCompile(`(?m)^#([a-z_]+ = |\[)`)

// The example has every key, commented out, with its default.
func TestExampleConfiguration(t *testing.T) {
	text := read(t, "packaging/agent.toml")
	if got, err := config.ParseAgent([]byte(text), "agent.toml"); err != nil {
		t.Error(err)
	} else if d := cmp.Diff(defaultConfig(t), got, sets); d != "" {
		t.Errorf("the example is not all defaults:\n%s", d)
	}
	got, err := config.ParseAgent(commented.ReplaceAll([]byte(text), []byte("$1")), "agent.toml")
	if err != nil {
		t.Fatal(err)
	}
	// examples of what has no default
	got.Shapes, got.Hook, got.Facts, got.Policy, got.Worker, got.Server =
		nil, "", nil, nil, config.Worker{}, config.Uplink{}
	got.Limits.Except, got.Network, got.Networks, got.Services, got.Pools = nil, farm.HostNetworks{}, nil, nil, nil
	got.Publish = nil
	want := defaultConfig(t)
	want.Shapes, want.Networks = nil, nil
	if d := cmp.Diff(want, got, sets); d != "" {
		t.Errorf("what the example says of defaults is not so:\n%s", d)
	}
	for _, key := range keys(t) {
		if key == "patience" || key == "bridge" { // old names
			continue
		}
		if !regexp.MustCompile(`(?m)^#(` + key + ` = |\[\[?([a-z_]+\.)?` + key + `\b)`).MatchString(text) {
			t.Errorf("packaging/agent.toml does not show %s", key)
		}
	}
}

var sets = cmp.Comparer(func(a, b farm.CPUSet) bool { return a.Equal(b) })

func defaultConfig(t *testing.T) config.Agent {
	t.Helper()
	c, err := config.ParseAgent(nil, "nothing")
	if err != nil {
		t.Fatal(err)
	}
	return c
}
