package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/cli/app"
)

// TestManual: every command and flag that --help lists is in a page, and no text of ours is taken for a request.
func TestManual(t *testing.T) {
	root := grange(&app.App{Out: io.Discard, Err: io.Discard})
	pages := map[string]string{}
	for _, p := range manPages(root) {
		pages[p.name] = p.text
	}
	for _, c := range listed(root) {
		page := pages["grange-"+c.Name()]
		if !strings.Contains(pages["grange"], roff("grange-"+c.Name())) {
			t.Errorf("grange.1 does not name %s", c.Name())
		}
		for _, leaf := range leaves(c) {
			if !strings.Contains(page, roff(leaf.CommandPath())) {
				t.Errorf("the page of %s lacks %q", c.Name(), leaf.CommandPath())
			}
		}
	}
	if page := pages["grange-exec"]; !strings.Contains(page, "\n"+`.BI "\-\-memory "`) {
		t.Errorf("grange-exec.1 lacks --memory:\n%s", page)
	}
}

func TestRoff(t *testing.T) {
	if got := breakable("a[b] " + strings.Repeat("x", longWord) + "[:y]"); !strings.HasSuffix(got, `x\:[:y]`) ||
		strings.Contains(got, `a\:`) {
		t.Error(got)
	}
	if got, want := roff(".TH a\\b\n'x --y"), `\&.TH a\eb`+"\n"+`\(aqx \-\-y`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
