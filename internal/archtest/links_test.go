package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	fenced   = regexp.MustCompile("(?s)```.*?```")
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	linked   = regexp.MustCompile(`\]\(([^)\s]*)\)`)
	linkText = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	noAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors are those that a page's headings have.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		word := strings.ToLower(linkText.ReplaceAllString(h[1], "$1"))
		all[strings.ReplaceAll(noAnchor.ReplaceAllString(word, ""), " ", "-")] = true
	}
	return all
}

// TestLinks: a link of a page leads to a file that is there, and to a heading that it has.
func TestLinks(t *testing.T) {
	walk(t, ".md", func(name string, text []byte) {
		for _, link := range linked.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
			file, anchor, _ := strings.Cut(link[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			target := filepath.Join(top, name)
			if file != "" {
				target = filepath.Join(filepath.Dir(target), file)
			}
			info, err := os.Stat(target)
			if err != nil {
				t.Errorf("%s: %s is not there", name, link[1])
				continue
			}
			if anchor == "" || info.IsDir() {
				continue
			}
			other, err := os.ReadFile(target)
			if err != nil || !anchors(string(other))[anchor] {
				t.Errorf("%s: no heading for %s", name, link[1])
			}
		}
	})
}
