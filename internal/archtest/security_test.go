package archtest

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestSecurityNamesTests: each line of docs/security.md rests on tests that there are, and each attack is behind a
// line.
func TestSecurityNamesTests(t *testing.T) {
	page := readText(t, "../../docs/security.md")
	named := regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(page, -1)
	if len(named) < 20 {
		t.Fatalf("%d tests are named; the page has another form than this test reads", len(named))
	}
	there := map[string]bool{}
	for _, s := range sources(t) {
		if s.test {
			for _, m := range regexp.MustCompile(`func (Test[A-Za-z0-9]+)\(`).FindAllStringSubmatch(readText(t,
				"../../"+s.path), -1) {
				there[m[1]] = true
			}
		}
	}
	for _, m := range named {
		if !there[m[1]] && m[1] != "TestX" {
			t.Errorf("docs/security.md names %s, which is no test", m[1])
		}
	}
	attacks := holesIn(regexp.MustCompile(`(?m)^\s*\{"([A-Z][0-9]+[a-z]?)", "`), readText(t, "../../e2e/security/holes.go"))
	lines := holesIn(regexp.MustCompile(`\| ([^|]*) \|\n`), page)
	for _, hole := range attacks {
		if !slices.Contains(lines, hole) {
			t.Errorf("attack %s is behind no line of docs/security.md", hole)
		}
	}
	for _, hole := range lines {
		if !slices.Contains(attacks, hole) {
			t.Errorf("docs/security.md names %s, and there is no such attack", hole)
		}
	}
}

var hole = regexp.MustCompile(`\b[CHMS][0-9]{1,2}[a-z]?\b`)

// holesIn returns the codes of holes in all that an expression finds.
func holesIn(where *regexp.Regexp, text string) []string {
	var found []string
	for _, m := range where.FindAllStringSubmatch(text, -1) {
		found = append(found, hole.FindAllString(m[1], -1)...)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
