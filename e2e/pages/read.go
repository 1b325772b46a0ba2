package main

import (
	"fmt"

	"github.com/chromedp/chromedp"

	"github.com/grange-project/grange/e2e/serverlab"
)

// read: from what the audit found to a rule, to a host and back by its findings, and to the jobs that ended there.
// Filters take effect when they are chosen: set changes a field as people do, and the page goes on by itself.
func (t *test) read() error {
	ctx, end, err := t.browser.tab()
	if err != nil {
		return err
	}
	defer end()
	return chromedp.Do(ctx, looks[0].step(), t.browser.visit("/audit"), text("main table", "ept-off"),
		text("main", "not reported"),
		text("main", "swappiness-high"), set("#severity", "warning"), without("main table", "ept-off"),
		text("main table", "host-swap-in-use"), press(`td.name a[href*="host-swap-in-use"]`),
		text("h1", "host-swap-in-use"), text("main", "What it costs"), press(`a[href="/hosts/wn-00001"]`),
		text("h1", "wn-00001"), text("#now", "ept-off"), press(`a[href="/jobs?host=wn-00001"]`),
		text("main table", "slurm/"), set("#since", "day"), text("main table", "slurm/"),
		t.browser.visit("/jobs"), text("main table", "exit:1"), set("#ended", "cancelled"),
		without("main table", "exit:1"), text("main table", "cancelled"),
		t.browser.visit("/jobs?user=nobody"), text("main", "No job is chosen by this filter."))
}

// jobs: one that waits says why, in the list and by itself, and comes to run before one's eyes.
func (t *test) jobs() error {
	ctx, end, err := t.browser.tab()
	if err != nil {
		return err
	}
	defer end()
	if err := chromedp.Do(ctx, looks[0].step(), t.browser.visit("/jobs?host=wn-00001"),
		text("#active", "2 jobs are before it"), press(`#active a[href="/jobs/`+serverlab.AWaitingJob+`"]`),
		text("#now", "2 jobs are before it"), js(`window.marked = true`)); err != nil {
		return err
	}
	if err := serverlab.RunWaitingJob(ctx, t.server.Store()); err != nil {
		return err
	}
	if err := chromedp.Do(ctx, text("#now .state", "running"), text("#now table", "boot")); err != nil {
		return err
	}
	if same, err := value[bool](ctx, `window.marked === true`); err != nil || !same {
		return fmt.Errorf("the page was loaded anew: %v, %w", same, err)
	}
	return nil
}
