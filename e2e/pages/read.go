package main

import "github.com/chromedp/chromedp"

// read: from what the audit found to a rule, to a host and back by its findings, and to the jobs that ended there.
// Filters take effect when they are chosen: set changes a field as people do, and the page goes on by itself.
func (t *test) read() error {
	ctx, end, err := t.browser.tab()
	if err != nil {
		return err
	}
	defer end()
	return chromedp.Do(ctx, looks[0].step(), t.browser.visit("/audit"), text("main table", "ept-off"),
		text("main", "not reported"), set("#severity", "warning"), without("main table", "ept-off"),
		text("main table", "host-swap-in-use"), press(`td.name a[href*="host-swap-in-use"]`),
		text("h1", "host-swap-in-use"), text("main", "What it costs"), press(`a[href="/hosts/wn-00001"]`),
		text("h1", "wn-00001"), text("#now", "ept-off"), press(`a[href="/jobs?host=wn-00001"]`),
		text("main table", "slurm/"), set("#since", "day"), text("main table", "slurm/"),
		t.browser.visit("/jobs"), text("main table", "exit:1"), set("#ended", "cancelled"),
		without("main table", "exit:1"), text("main table", "cancelled"),
		t.browser.visit("/jobs?user=nobody"), text("main", "No job is chosen by this filter."))
}
