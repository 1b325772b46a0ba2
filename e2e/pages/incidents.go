package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/chromedp/chromedp"
)

// swapTitle is that of the incident that every run has.
const swapTitle = "Swap is full, and jobs are slow"

// report writes the incidents that pages show: one with all that one may have, and one of a project.
func (s *server) report(ctx context.Context) error {
	for _, args := range [][]string{
		{"open", swapTitle, "--host", "wn-00001", "--vm", "atlas/web-0-0", "--finding", "host-swap-in-use",
			"--severity", "critical", "--note", "Since the reboot.\nAll jobs of the host, and of those beside it."},
		{"open", "Jobs of people wait for an hour", "-p", "people", "--began", "1h"},
		{"link", "1", "--incident", "2", "--cell", "general"},
		{"note", "1", "More memory is on its way."},
	} {
		if _, err := s.Grange(ctx, append([]string{"incident"}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

// incidents: one is opened from a host's page, is written on by several, closed, and found again; who may read alone is
// refused, and whom it does not concern sees nothing of it.
func (t *test) incidents() error {
	ctx, end, err := t.browser.tab()
	if err != nil {
		return err
	}
	defer end()
	const title = "The disk of wn-00002 is slow"
	if err := chromedp.Do(ctx, looks[0].step(), t.browser.visit("/hosts/wn-00002"), press("#new-incident"),
		text("h1", "New incident"), visible(`#host[value="wn-00002"]`), write("#title", title),
		set("#severity", "major"), write("#text", "fio says 3 MB/s"), press("main form .go"),
		text("h1", title), text(".entries", "fio says 3 MB/s"), js(`window.marked = true`),
		write("#text", "half a no")); err != nil {
		return err
	}
	path, err := value[string](ctx, `location.pathname`)
	if err != nil {
		return err
	}
	id := strings.TrimPrefix(path, "/incidents/")
	// what another one writes comes by itself, and takes nothing from what is being typed
	if _, err := t.server.Grange(ctx, "incident", "note", id, "the cable was loose"); err != nil {
		return err
	}
	if err := chromedp.Do(ctx, text(".entries", "the cable was loose"), write("#text", "te")); err != nil {
		return err
	}
	typed, err := value[string](ctx, `window.marked + " " + document.querySelector("#text").value`)
	if err != nil || typed != "true half a note" {
		return fmt.Errorf("what was typed is %q, %w", typed, err)
	}
	if err := t.everyLook(ctx, "incident, all of it open", path); err != nil {
		return err
	}
	if err := chromedp.Do(ctx, looks[0].step(), t.browser.visit(path), write("#text", "replaced"),
		press(`form[action$="/note"] .go`), text(".entries", "ann wrote"), text(".entries", "replaced"),
		t.browser.visit("/hosts/wn-00002"), text("#now", title),
		t.browser.visit(path), js(openAll), write("#why", "a new cable"), press(`form[action$="/close"] button`),
		text(".head .state", "closed"), text(".entries", "a new cable"),
		t.browser.visit("/hosts/wn-00002"), text("#now", "None is open."),
		t.browser.visit("/incidents?state=closed&host=wn-00002"), text("main table", title)); err != nil {
		return err
	}
	return t.incidentsOfOthers(path)
}

// openAll opens what a page keeps folded.
const openAll = `document.querySelectorAll("details").forEach(d => d.open = true)`

// everyLook has axe look at a page with all that it keeps folded.
func (t *test) everyLook(ctx context.Context, name, path string) error {
	var all []error
	for _, l := range looks {
		err := chromedp.Do(ctx, l.step(), t.browser.visit(path), js(openAll))
		if err == nil {
			err = t.holds(ctx, name, l)
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

// incidentsOfOthers are seen by rita, who may read what concerns project people and nothing else.
func (t *test) incidentsOfOthers(path string) error {
	token, err := t.server.Grange(t.browser.ctx, "token", "create", "--user", "rita")
	if err != nil {
		return err
	}
	ctx, end, err := t.browser.tabAs(strings.TrimSpace(token))
	if err != nil {
		return err
	}
	defer end()
	if err := chromedp.Do(ctx, looks[0].step(), t.browser.visit(path), text("main .trouble", "rita may not read incident"),
		t.browser.visit("/incidents"), text("main table", "Jobs of people wait"), without("main table", swapTitle),
		t.browser.visit("/incidents/2"), text("h1", "Jobs of people wait"), without("main", "Write on it"),
		text("main", "1, which you may not read")); err != nil {
		return err
	}
	for _, verb := range []string{"note", "link", "close"} {
		status, err := chromedp.Run(ctx, chromedp.Evaluate[int](`fetch("/incidents/2/`+verb+`", {method: "POST",
			body: new URLSearchParams({text: "mine", project: "people"})}).then(r => r.status)`, chromedp.EvalAwaitPromise))
		if err != nil || status != 403 {
			return fmt.Errorf("%s by who may read alone is answered by %d, %w", verb, status, err)
		}
	}
	return chromedp.Do(ctx, t.browser.visit("/incidents/2"), without(".entries", "mine"), text(".head .state", "open"))
}
