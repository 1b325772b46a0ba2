package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/grange-project/grange/internal/procstat"
)

const (
	paints  = 9          // of which the median counts
	letters = "wn-00123" // typed, and taken away again
	rounds  = 8
	visits  = 40 // of a page, for what it costs
)

// watchKeys notes by the browser's own clock how long it takes from each key until its effect is painted. What is
// faster than 16 ms it does not tell: it counts as that.
const watchKeys = `window.keys = []; new PerformanceObserver(l => { for (const e of l.getEntries())
	if (e.name === "keydown") keys.push(e.duration) }).observe({type: "event", durationThreshold: 16})`

const painted = `performance.getEntriesByName("first-contentful-paint").length > 0`

func (t *test) speed() error {
	ctx, end, err := t.browser.tab()
	if err != nil {
		return err
	}
	defer end()
	var took []float64
	for range paints {
		if err := chromedp.Do(ctx, looks[0].step(), t.browser.visit("/farm"),
			until("the first paint", painted)); err != nil {
			return err
		}
		at, err := value[float64](ctx, `performance.getEntriesByName("first-contentful-paint")[0].startTime`)
		if err != nil {
			return err
		}
		took = append(took, at)
	}
	slices.Sort(took)
	t.FirstPaint = math.Round(took[len(took)/2])
	return t.keystrokes(ctx)
}

func (t *test) keystrokes(ctx context.Context) error {
	if err := chromedp.Do(ctx, call(page.BringToFront, cdp.Empty{}), text("#mapsays", fmt.Sprintf("%d hosts", t.Hosts)),
		js(watchKeys), focus("#q")); err != nil {
		return err
	}
	pressed := 0
	for range rounds {
		for _, letter := range letters + "\b\b\b\b\b\b\b\b" {
			if err := chromedp.Do(ctx, key(string(letter)), chromedp.Sleep(150*time.Millisecond)); err != nil {
				return err
			}
			pressed++
		}
	}
	slow, err := value[[]float64](ctx, `keys`)
	if err != nil {
		return err
	}
	if err := chromedp.Do(ctx, key(letters), text("#mapsays", "1 of ")); err != nil {
		return err
	}
	all := make([]float64, max(pressed, len(slow)))
	for i := range all {
		all[i] = 16
	}
	copy(all, slow)
	slices.Sort(all)
	t.Keystroke = all[len(all)*95/100]
	return nil
}

// cost measures the server's CPU for pages that browsers ask for, each many times. The form of a new VM is not among
// them: where that could run is asked of each host, as `grange why` does, and that takes longer than any page.
func (t *test) cost() error {
	for _, path := range []string{"/farm", "/farm/hosts.json", "/vms?of=all", "/vms/rows?of=all", "/hosts/wn-00001",
		"/vms/atlas/web-0-0", "/incidents", "/incidents/1", "/audit",
		"/audit?rule=host-swap-in-use", "/jobs", "/jobs?ended=cancelled",
		"/jobs/rows"} {
		if err := t.get(path); err != nil { // the first one may have to read the fleet
			return err
		}
		before, err := procstat.CPUTime(t.server.PID)
		if err != nil {
			return err
		}
		for range visits {
			if err := t.get(path); err != nil {
				return err
			}
		}
		after, err := procstat.CPUTime(t.server.PID)
		if err != nil {
			return err
		}
		each := float64((after - before).Milliseconds()) / visits
		fmt.Printf("        %6.1f ms  %s\n", each, path)
		t.PageCPU = max(t.PageCPU, each)
	}
	return nil
}

func (t *test) get(path string) error {
	r, err := http.NewRequest(http.MethodGet, t.server.URL+path, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+t.server.token)
	answer, err := t.server.Client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers with %s", path, answer.Status)
	}
	return nil
}
