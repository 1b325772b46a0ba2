package tuning

import (
	"archive/tar"
	"compress/bzip2"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hostfacts"
)

var update = flag.Bool("update", false, "write golden files anew")

// How a rule is tested: testdata/rules/<id>.txtar says in its comment what it shows, and holds
//
//	fires/...  laid over base.txtar (base-guest.txtar for a role of guest): there the rule finds something
//	quiet/...  laid over the same base: there it finds nothing
//	role       "compute" (where there is none), "service" or "guest"
//	fires/profile.toml, quiet/profile.toml    a profile, instead of the one that fits
//	fires/want                                the findings, a line each: "severity where: got"; -update writes it
//
// A file that consists of the line "-" takes that file, or all below that directory, out of the base. No rule fires on
// the base.

var ruleID = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

func TestRulesSayWhatTheyMean(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rules() {
		t.Run(r.ID, func(t *testing.T) {
			if !ruleID.MatchString(r.ID) {
				t.Errorf("ID %q is not in kebab-case", r.ID)
			}
			if seen[r.ID] {
				t.Errorf("two rules are called %s", r.ID)
			}
			seen[r.ID] = true
			checkTexts(t, r)
			if r.Severity < Advice || r.Severity > Fault {
				t.Errorf("%v is no severity", r.Severity)
			}
			for _, role := range r.Roles {
				if role != Compute && role != Service && role != Guest {
					t.Errorf("%q is no role", role)
				}
			}
			if r.Check == nil {
				t.Error("has no Check")
			}
			file := "rule_" + strings.ReplaceAll(r.ID, "-", "_") + ".go"
			if _, err := os.Stat(file); err != nil {
				t.Errorf("has no file of its own, %s", file)
			}
		})
	}
	files, err := filepath.Glob("rule_*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		id := strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(file, "rule_"), ".go"), "_", "-")
		if !seen[id] && !strings.HasSuffix(file, "_test.go") {
			t.Errorf("%s is the file of no rule in Rules()", file)
		}
	}
}

func checkTexts(t *testing.T, r Rule) {
	t.Helper()
	for name, text := range map[string]string{"Title": r.Title, "Holds": r.Holds, "Cost": r.Cost, "Why": r.Why,
		"Fix": r.Fix, "Undo": r.Undo} {
		if strings.TrimSpace(text) == "" {
			t.Errorf("%s is empty", name)
		}
	}
	for name, text := range map[string]string{"Title": r.Title, "Holds": r.Holds, "Cost": r.Cost, "Why": r.Why,
		"Fix": r.Fix, "Undo": r.Undo, "Danger": r.Danger} {
		if text != strings.TrimSpace(text) || strings.Contains(text, "  ") || strings.ContainsAny(text, "\t\n") {
			t.Errorf("%s is not one line of text with single blanks: %q", name, text)
		}
	}
	if first := []rune(r.Title + " "); first[0] >= 'A' && first[0] <= 'Z' &&
		!(first[1] >= 'A' && first[1] <= 'Z' || first[1] >= '0' && first[1] <= '9') {
		t.Errorf("Title %q begins with a capital: it is a line in a list", r.Title)
	}
	if strings.HasSuffix(r.Title, ".") {
		t.Errorf("Title %q ends with a full stop", r.Title)
	}
	if len(r.Title) > 90 {
		t.Errorf("Title has %d characters: more than a line of a table", len(r.Title))
	}
	if len(r.Why) < 200 {
		t.Errorf("Why has %d characters: too little for an administrator who never heard of it", len(r.Why))
	}
	if len(r.Sources) == 0 {
		t.Error("has no source: a rule without evidence is not shown")
	}
	for _, s := range r.Sources {
		if s.Name == "" || s.Says == "" {
			t.Errorf("the source %+v lacks a name, or what it says", s)
		}
		if s.URL != "" && !strings.HasPrefix(s.URL, "https://") && !strings.HasPrefix(s.URL, "http://") {
			t.Errorf("the source %q has the address %q", s.Name, s.URL)
		}
	}
}

// hostOf reads the host of a tree.
func hostOf(t testing.TB, files map[string]string) farm.HostFacts {
	t.Helper()
	h, err := hostfacts.Read(treeOf(files))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func baseOf(t testing.TB, role Role) map[string]string {
	t.Helper()
	if role == Guest {
		return readArchive(t, "testdata/rules/base-guest.txtar").files
	}
	return readArchive(t, "testdata/rules/base.txtar").files
}

// side is one half of a rule's test: the tree where it fires, or the one where it is quiet.
func (a archive) side(t *testing.T, dir string) (farm.HostFacts, Profile) {
	t.Helper()
	files := a.under(dir)
	if len(files) == 0 {
		t.Fatalf("the archive has no files below %s", dir)
	}
	role := Role(strings.TrimSpace(a.files["role"]))
	if role == "" {
		role = Compute
	}
	text, own := files["profile.toml"]
	delete(files, "profile.toml")
	delete(files, "want")
	h := hostOf(t, overlay(baseOf(t, role), files))
	if !own {
		return h, Choose(h, role)
	}
	p, err := ParseProfile([]byte(text), dir+"/profile.toml")
	if err != nil {
		t.Fatal(err)
	}
	return h, p
}

// tree returns one half of a rule's test as files, laid over the base.
func (a archive) tree(t *testing.T, dir string) (map[string]string, Profile) {
	t.Helper()
	_, p := a.side(t, dir)
	role := Role(strings.TrimSpace(a.files["role"]))
	if role == "" {
		role = Compute
	}
	files := a.under(dir)
	delete(files, "profile.toml")
	delete(files, "want")
	return overlay(baseOf(t, role), files), p
}

func TestRulesFireAndAreQuiet(t *testing.T) {
	for _, r := range Rules() {
		t.Run(r.ID, func(t *testing.T) {
			path := "testdata/rules/" + r.ID + ".txtar"
			a := readArchive(t, path)
			if len(strings.TrimSpace(a.comment)) < 20 {
				t.Errorf("the comment of %s does not say what it shows", path)
			}
			h, p := a.side(t, "fires")
			found := r.Check(h, p)
			if len(found) == 0 {
				t.Errorf("finds nothing in fires")
			}
			checkFindings(t, r, found)
			got := lines(found)
			if *update && a.files["fires/want"] != got {
				a.write(t, path, "fires/want", got)
			} else if want, ok := a.files["fires/want"]; ok && !*update {
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("findings differ from fires/want:\n%s", d)
				}
			}
			for _, f := range found {
				if len(f.Changes) == 0 && f.Manual == "" {
					t.Errorf("%s: neither changes nor what a person has to do", f.Where)
				}
			}
			h, p = a.side(t, "quiet")
			if found := r.Check(h, p); len(found) > 0 {
				t.Errorf("finds in quiet:\n%s", lines(found))
			}
		})
	}
}

func lines(found []Finding) string {
	var b strings.Builder
	for _, f := range found {
		fmt.Fprintf(&b, "%v %s: %s\n", f.Severity, f.Where, f.Got)
	}
	return b.String()
}

func checkFindings(t *testing.T, r Rule, found []Finding) {
	t.Helper()
	for _, f := range found {
		if f.Rule != "" && f.Rule != r.ID {
			t.Errorf("%s finds something for %s", r.ID, f.Rule)
		}
		if f.Severity < Advice || f.Severity > r.Severity {
			t.Errorf("%s %s: severity %v, and the rule's highest is %v", r.ID, f.Where, f.Severity, r.Severity)
		}
		if f.Where == "" || f.Wanted == "" || f.Got == "" {
			t.Errorf("%s: a finding does not say where, what is wanted, or what is: %+v", r.ID, f)
		}
		for _, c := range f.Changes {
			checkChange(t, r.ID, c)
		}
	}
}

func checkChange(t *testing.T, id string, c Change) {
	t.Helper()
	ok := false
	switch c.Kind {
	case SetValue:
		ok = fs.ValidPath(c.Path) && (strings.HasPrefix(c.Path, "sys/") || strings.HasPrefix(c.Path, "proc/sys/")) &&
			c.Value != ""
	case SetBoot:
		ok = c.Name != "" && c.Reboot
	case SetModule:
		ok = c.Unit != "" && c.Name != "" && (c.Value != "" || c.Remove)
		paging := slices.Contains([]string{"ept", "enable_ept", "npt"}, c.Name)
		if paging && !farm.Switch(c.Value).On() && !c.Remove {
			t.Errorf("%s would turn hardware page tables off: %+v", id, c)
		}
	case SetService:
		ok = c.Unit != "" && (c.Value == "on" || c.Value == "off")
	case SetTuned:
		ok = strings.HasPrefix(c.Path, "etc/tuned/") && c.Unit != "" && c.Name != "" && c.Value != ""
	case Unmerge:
		ok = true
	}
	if !ok {
		t.Errorf("%s: the change %+v is incomplete", id, c)
	}
}

// audited returns the findings of all rules for a profile's role, with the names of the rules.
func audited(h farm.HostFacts, p Profile) []Finding {
	var out []Finding
	for _, r := range Rules() {
		if r.For(p.Role) {
			for _, f := range r.Check(h, p) {
				f.Rule = r.ID
				out = append(out, f)
			}
		}
	}
	return out
}

func TestBaseIsWellTuned(t *testing.T) {
	for _, role := range []Role{Compute, Guest} {
		h := hostOf(t, baseOf(t, role))
		p := Choose(h, role)
		for _, r := range Rules() {
			if r.For(role) {
				if found := r.Check(h, p); len(found) > 0 {
					t.Errorf("%s finds in the base for %s, with profile %s:\n%s", r.ID, role, p.Name, lines(found))
				}
			}
		}
	}
}

// roles of all rules, for tests that try each.
var allRoles = []Role{Compute, Service, Guest}

func TestMissingFactsAreNoFinding(t *testing.T) {
	wanted := []Profile{{}}
	for _, role := range allRoles {
		wanted = append(wanted, Choose(farm.HostFacts{}, role))
	}
	for _, r := range Rules() {
		for _, p := range wanted {
			if found := r.Check(farm.HostFacts{}, p); len(found) > 0 {
				t.Errorf("%s finds something on a host of which nothing is known, with profile %q:\n%s", r.ID, p.Name,
					lines(found))
			}
		}
	}
}

func TestRulesTakeRecordedMachines(t *testing.T) {
	machines, err := filepath.Glob("../topology/testdata/*.tar.bz2")
	if err != nil || len(machines) == 0 {
		t.Fatalf("no recorded machines: %v", err)
	}
	for _, path := range machines {
		t.Run(filepath.Base(path), func(t *testing.T) {
			h, err := hostfacts.Read(unpacked(t, path))
			if err != nil {
				t.Fatal(err)
			}
			for _, role := range allRoles {
				tryAll(t, h, role)
			}
		})
	}
}

// unpacked is the tree of a bzip2 tar archive, without its top directory. Its links to directories are left out.
func unpacked(t *testing.T, path string) fs.FS {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files := map[string]string{}
	for r := tar.NewReader(bzip2.NewReader(f)); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return treeOf(files)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(strings.TrimPrefix(filepath.Clean(head.Name), "/"), "/")
		if head.Typeflag != tar.TypeReg || name == "" {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(r, 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(text)
	}
}

func tryAll(t *testing.T, h farm.HostFacts, role Role) {
	t.Helper()
	p := Choose(h, role)
	for _, r := range Rules() {
		checkFindings(t, r, r.Check(h, p))
	}
}

// Trees with files missing, emptied and mixed up: no rule may panic or find half a thing.
func TestRulesTakeBrokenTrees(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, role := range []Role{Compute, Guest} {
		base := baseOf(t, role)
		names := slices.Sorted(maps.Keys(base))
		read := 0
		for range 150 {
			files := maps.Clone(base)
			for range 1 + random.IntN(len(names)/3) {
				name := names[random.IntN(len(names))]
				switch random.IntN(4) {
				case 0:
					files[name] = ""
				case 1:
					files[name] = base[names[random.IntN(len(names))]]
				default:
					delete(files, name)
				}
			}
			h, err := hostfacts.Read(treeOf(files))
			if err != nil {
				continue // a damaged tree may be refused
			}
			read++
			tryAll(t, h, role)
		}
		if read < 10 {
			t.Errorf("only %d of the broken trees for %s could be read: the test shows little", read, role)
		}
	}
}

// Hosts with facts set to nothing at random: what a reader leaves out must not matter.
func TestRulesTakePartialHosts(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, role := range []Role{Compute, Guest} {
		for range 150 {
			h := hostOf(t, baseOf(t, role))
			forget(random, reflect.ValueOf(&h).Elem())
			tryAll(t, h, role)
		}
	}
}

// forget sets a tenth of all exported fields to their zero value, and takes a tenth of all keys out of maps.
func forget(random *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				if random.IntN(10) == 0 {
					f.SetZero()
				}
				forget(random, f)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			forget(random, v.Index(i))
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		for _, key := range keys {
			if random.IntN(10) == 0 {
				v.SetMapIndex(key, reflect.Value{})
			}
		}
	}
}
