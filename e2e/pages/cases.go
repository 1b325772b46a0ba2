package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/grange-project/grange/e2e/serverlab"
)

// aPage is one of the pages, and its title.
type aPage struct{ name, path, title string }

// pagesOf are all pages that axe looks at and that are drawn.
var pagesOf = []aPage{
	{"vms", "/vms?of=all", "VMs"},
	{"vms-mine", "/vms?of=mine", "My VMs"},
	{"vm", "/vms/atlas/web-0-0", "web-0-0"},
	{"vm-new", "/vms/new", "New VM"},
	{"vm-delete", "/vms/atlas/web-0-0/delete", "Delete web-0-0"},
	{"vm-resize", "/vms/atlas/web-0-0/resize", "Resize web-0-0"},
	{"farm", "/farm", "Farm"},
	{"host", "/hosts/wn-00001", "wn-00001"},
	{"jobs", "/jobs", "Jobs"},
	{"job", "/jobs/" + serverlab.AnEndedJob, "slurm/"},
	{"job-waits", "/jobs/" + serverlab.AWaitingJob, "slurm/"},
	{"audit", "/audit", "Audit"},
	{"audit-rule", "/audit?rule=host-swap-in-use", "host-swap-in-use"},
	{"projects", "/projects", "Projects"},
	{"images", "/images", "Images"},
	{"image", "/images/debian-13", "debian-13"},
	{"networks", "/networks", "Networks"},
	{"incidents", "/incidents", "Incidents"},
	{"incident", "/incidents/1", swapTitle},
	{"incident-new", "/incidents/new?host=wn-00001", "New incident"},
	{"log", "/log", "Log"},
	{"sign-in", "/auth/login", "Sign in to grange"},
	{"why", "/why?project=people&shape=large&cpus=64&memory=600G", "Why"},
	{"missing", "/vms/people/nobody", "Not here"},
}

var cases = []aCase{
	{"axe finds nothing, on a desk and a phone, dark and light", (*test).accessible},
	{"a VM is made, runs without a reload, and is deleted", (*test).life},
	{"refusals say what happened and what to try", (*test).refusals},
	{"signed in by an issuer, and out", (*test).signedIn},
	{"an incident is opened, written on and closed, by those whom it concerns", (*test).incidents},
	{"the audit leads from a rule to its hosts, and jobs to what failed", (*test).read},
	{"a job that waits is seen to run without a reload", (*test).jobs},
	{"without JavaScript: a VM's life, the farm, what is read", (*test).withoutScripts},
	{"a page keeps its place when nothing is typed: the keyboard alone", (*test).keyboard},
	{"the map of all hosts: first paint and keystrokes", (*test).speed},
	{"what pages cost the server", (*test).cost},
	// last, for the fleet has a host more then, and the browser a session
	{"signed in, a real VM's console and display are typed into", (*test).console},
}

func (t *test) accessible() error {
	ctx, end, err := t.browser.tab()
	if err != nil {
		return err
	}
	defer end()
	var all []error
	for _, l := range looks {
		for _, p := range pagesOf {
			ctx, cancel := context.WithTimeout(ctx, stepTime)
			err := chromedp.Do(ctx, l.step(), t.browser.visit(p.path), text("h1", p.title))
			if err == nil {
				err = t.holds(ctx, p.name, l)
			}
			cancel()
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// holds is what axe finds of the page that is shown, and how it fits the window.
func (t *test) holds(ctx context.Context, name string, l look) error {
	found, err := t.browser.violations(ctx)
	t.Violations += len(found)
	if len(found) > 0 {
		err = errors.Join(err, errors.New(strings.Join(found, "\n")))
	}
	err = errors.Join(err, t.wide(ctx, l))
	if err != nil {
		return fmt.Errorf("%s, %s: %w", name, l.name, err)
	}
	return nil
}

// wide is why a page has to be moved sideways on a phone.
func (t *test) wide(ctx context.Context, l look) error {
	beyond, err := value[int](ctx, `document.documentElement.scrollWidth - document.documentElement.clientWidth`)
	if err != nil {
		return err
	}
	if beyond > 0 {
		return fmt.Errorf("it is %d pixels wider than a window of %d", beyond, l.width)
	}
	return nil
}

func (t *test) life() error {
	ctx, end, err := t.browser.tab()
	if err != nil {
		return err
	}
	defer end()
	err = chromedp.Do(ctx, looks[0].step(), t.browser.visit("/vms?of=mine"), press("[data-new]"),
		text("h1", "New VM"), set("#project", "people"), set("#shape", "large"),
		// what would come of it is shown before anything is sent
		js(`document.querySelector("#shape").dispatchEvent(new Event("change", {bubbles: true}))`),
		text("#outlook", "would take it now"), text("#outlook", "1G pages"),
		set("#shape", "tiny"), write("#vmname", "first"), write("#image", "micro"), press("#create .go"),
		text("h1", "first"), js(`window.marked = true`), text("#now .state", "running"))
	if err != nil {
		return err
	}
	if same, err := value[bool](ctx, `window.marked === true`); err != nil || !same {
		return fmt.Errorf("the page was loaded anew: %v, %w", same, err)
	}
	return chromedp.Do(ctx, t.browser.visit("/vms?of=mine"), text("#rows", "first"), text("#rows", "running"),
		press("#delete-people-first"), text("h1", "Delete first"), press(".sure"), text("h1", "VMs"),
		without("#rows a", "first"))
}

func (t *test) refusals() error {
	ctx, end, err := t.browser.tab()
	if err != nil {
		return err
	}
	defer end()
	make := func(name, image, cpus string) step {
		return chromedp.Steps(t.browser.visit("/vms/new"), set("#project", "people"), set("#shape", "tiny"),
			write("[name=cpus]", cpus), set("#vmname", name), set("#image", image), press("#create .go"))
	}
	return chromedp.Do(ctx, looks[0].step(),
		make("taken", "micro", ""), text("h1", "taken"),
		make("taken", "micro", ""), text("main .trouble", "there is a VM people/taken already"),
		text("main .trouble", "take another name"),
		make("toomany", "micro", "4000"), text("main .trouble", "quota"),
		// what was written is there still
		visible(`#vmname[value="toomany"]`),
		t.browser.visit("/vms/people/taken/move"), press(".go"), text("main .trouble", "move"),
		t.browser.visit("/vms/people/nobody"), text("main .trouble", "no VM"),
		t.browser.visit("/vms/people/taken/delete"), press(".sure"), text("h1", "VMs"))
}

func (t *test) keyboard() error {
	ctx, end, err := t.browser.tab()
	if err != nil {
		return err
	}
	defer end()
	if err := chromedp.Do(ctx, looks[0].step(), t.browser.visit("/vms?of=all"), key("/")); err != nil {
		return err
	}
	if focused, err := value[string](ctx, `document.activeElement.id`); err != nil || focused != "name" {
		return fmt.Errorf("/ goes to %q, %w", focused, err)
	}
	return chromedp.Do(ctx, js(`document.activeElement.blur()`), key("gf"), // both within a moment
		text("h1", "Farm"), visible("#map canvas"),
		focus("#map canvas"), key(kb.ArrowRight),
		text("#mapsays", "wn-00002"), key(kb.Enter), text("h1", "wn-00002"))
}
