// Command pages looks at a server's web pages as people do: with Debian's Chromium, at a server process with many
// hosts, dark and light, on a desk and on a phone. Every page is checked by axe, and for what the browser complains
// about; a VM is made, seen to run without a reload, and deleted; refusals are read; and the map of all hosts is
// measured by the browser's own clock. The last line is JSON; whatever failed fails the run.
//
// With -screens it draws every page for docs/guide/pages.md instead.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/oidclab"
)

// figures are the line at the end.
type figures struct {
	Hosts      int     `json:"hosts"`
	Cases      int     `json:"cases"`
	Failed     int     `json:"failed"`
	Violations int     `json:"violations"`       // of axe, on all pages
	CSP        int     `json:"csp_reports"`      // what the pages' policy kept the browser from
	Foreign    int     `json:"foreign_requests"` // to other origins
	Errors     int     `json:"errors"`           // that the browser's console shows
	FirstPaint float64 `json:"first_paint_ms"`   // of the map of all hosts: the median
	Keystroke  float64 `json:"keystroke_ms_p95"` // from a key in the map's filter until it is painted
	PageCPU    float64 `json:"page_cpu_ms"`      // that the dearest page costs the server
	Seconds    float64 `json:"seconds"`
}

// limits of what is measured.
const (
	mostKeystroke = 100
	mostPageCPU   = 50
)

func main() {
	hosts := flag.Int("hosts", 10000, "how many the fleet has")
	binary := flag.String("grange", "bin/grange", "the `PROGRAM`")
	axe := flag.String("axe", "", "axe.min.js, of npm's axe-core; fetched when not given")
	screens := flag.String("screens", "", "draw the pages into this `DIR`, and test nothing")
	only := flag.String("only", "", "only the cases whose names have this `TEXT`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	f := &figures{Hosts: *hosts}
	began := time.Now()
	err := run(ctx, f, *binary, *axe, *screens, *only)
	if err != nil {
		f.Failed++
		fmt.Fprintln(os.Stderr, "pages:", err)
	}
	f.Seconds = time.Since(began).Round(100 * time.Millisecond).Seconds()
	text, _ := json.Marshal(f)
	fmt.Println(string(text))
	if f.Failed > 0 {
		os.Exit(1)
	}
}

func run(ctx context.Context, f *figures, binary, axe, screens, only string) error {
	dir, err := os.MkdirTemp("", "grange-pages-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := newServer(dir, binary)
	if err != nil {
		return err
	}
	defer s.Close()
	issuer, err := startIssuer(ctx, dir, s)
	if err != nil {
		return err
	}
	defer func() { issuer.End() }()
	if err := s.begin(ctx, f.Hosts, issuer); err != nil {
		return err
	}
	if err := issuer.Trust(s.CAFile()); err != nil {
		return err
	}
	b, err := startBrowser(ctx, dir, s, issuer)
	if err != nil {
		return err
	}
	defer b.close()
	if screens != "" {
		return drawAll(b, screens)
	}
	if b.axe, err = axeSource(ctx, dir, axe); err != nil {
		return err
	}
	t := &test{figures: f, server: s, browser: b, issuer: issuer}
	for _, c := range cases {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if strings.Contains(c.name, only) {
			t.try(c)
		}
	}
	t.total()
	return nil
}

// test is one run.
type test struct {
	*figures
	server  *server
	browser *browser
	issuer  *oidclab.Provider
}

// aCase is one thing that must hold.
type aCase struct {
	name string
	run  func(*test) error
}

func (t *test) try(c aCase) {
	t.Cases++
	err := c.run(t)
	result := "held  "
	if err != nil {
		t.Failed++
		result = "FAILED"
	}
	fmt.Printf("%s  %s\n", result, c.name)
	if err != nil {
		fmt.Printf("        %s\n", strings.ReplaceAll(err.Error(), "\n", "\n        "))
	}
}

// total holds what was counted on the way against what may be.
func (t *test) total() {
	seen := t.browser.seen.all()
	t.CSP, t.Foreign, t.Errors = len(seen.csp), len(seen.foreign), len(seen.errors)
	for what, those := range map[string][]string{"the policy kept the browser from": seen.csp,
		"requests to elsewhere": seen.foreign, "the console shows": seen.errors} {
		if len(those) > 0 {
			t.Failed++
			fmt.Printf("FAILED  %s:\n        %s\n", what, strings.Join(those, "\n        "))
		}
	}
	if t.Violations > 0 {
		t.Failed++
	}
	if t.Keystroke > mostKeystroke || t.PageCPU > mostPageCPU {
		t.Failed++
		fmt.Printf("FAILED  more than %d ms a keystroke, or %d ms of the server's CPU a page\n", mostKeystroke,
			mostPageCPU)
	}
}
