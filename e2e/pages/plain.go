package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/grange-project/grange/e2e/oidclab"
	"github.com/grange-project/grange/e2e/serverlab"
)

// plain is a browser without JavaScript, in which somebody has signed in.
type plain struct {
	*oidclab.Browser
	err error // the first thing that was not as it should be; nothing is done after it
}

// withoutScripts does all but what is live by forms and links: a VM's life, the farm, a drain, and what is read.
func (t *test) withoutScripts() error {
	b := &plain{Browser: oidclab.NewBrowser(t.server.URL, t.issuer.Roots)}
	var at oidclab.Page
	at, b.err = b.SignIn(t.issuer.Issuer, "ann", "/vms/new")
	b.holds(at, "New VM")
	vm := url.Values{"name": {"plain"}, "project": {"people"}, "image": {"micro"}, "shape": {"tiny"}}
	b.holds(b.submit("/vms/new", "/vms/new/check", vm), "Where it could run", "would take it now")
	b.holds(b.submit("/vms/new", "/vms/new", vm), "<h1>", "plain")
	b.becomes("/vms/people/plain", "running")
	b.holds(b.submit("/vms/new", "/vms/new", vm), "there is a VM people/plain already", "take another name")
	b.holds(b.at("/vms?of=mine&name=pla*"), "plain", "running", `formaction="/vms/people/plain/stop"`)
	b.submit("/vms?of=mine", "/vms/people/plain/stop", nil)
	b.becomes("/vms/people/plain", "stopped")
	b.submit("/vms?of=mine", "/vms/people/plain/start", nil)
	b.becomes("/vms/people/plain", "running")
	b.holds(b.submit("/vms/people/plain/delete", "/vms/people/plain/delete", nil), "VMs")
	b.becomes("/vms/people/plain", "no VM")
	host := fmt.Sprintf("live-%05d", answering)
	b.holds(b.at("/farm?q="+host), "1 ", `href="/hosts/`+host+`"`)
	b.submit("/hosts/"+host, "/hosts/"+host+"/drain", url.Values{"reason": {"new disks"}})
	b.becomes("/hosts/"+host, "new disks")
	b.submit("/hosts/"+host, "/hosts/"+host+"/open", nil)
	b.becomes("/hosts/"+host, "open")
	incident := url.Values{"title": {"plain hosts are slow"}, "text": {"since noon"}}
	p := b.submit("/incidents/new?host="+host, "/incidents/new", incident)
	b.holds(p, "plain hosts are slow", "since noon", host)
	if b.err != nil {
		return b.err
	}
	path := p.URL.Path
	b.holds(b.submit(path, path+"/note", url.Values{"text": {"a switch"}}), "a switch")
	b.holds(b.submit(path, path+"/link", url.Values{"cell": {"general"}}), "/farm?cell=general")
	b.holds(b.submit(path, path+"/close", url.Values{"text": {"rebooted"}}), "closed, minor", "rebooted")
	b.holds(b.submit(path, path+"/reopen", nil), "reopened it")
	b.submit(path, path+"/close", nil)
	b.holds(b.at("/hosts/"+host), "None is open.")
	b.holds(b.at("/why?project=people&shape=tiny&image=micro"), "would take it now")
	b.holds(b.at("/audit?severity=warning&kind=amd-epyc-7302-2s"), "host-swap-in-use", "of")
	b.holds(b.at("/audit?rule=host-swap-in-use"), "What it costs", `href="/hosts/wn-00001"`)
	b.holds(b.at("/jobs?ended=failed&user=carl"), "slurm/", "signal:9")
	b.holds(b.at("/jobs"), "jobs are before it", `href="/jobs/`)
	b.holds(b.at("/jobs/"+serverlab.AnEndedJob), "CPU time", "boot", "<rect")
	b.holds(b.at("/projects"), "people", "of 40")
	b.holds(b.at("/networks"), "lan", "bridge:br0")
	b.holds(b.at("/images"), "catalogue")
	b.holds(b.at("/log?project=people"), "vm.delete", "people/plain")
	b.holds(b.submit("/vms", "/auth/logout", nil), "Sign in to grange")
	b.holds(b.at("/vms"), "Sign in to grange")
	return b.err
}

// at is a page.
func (b *plain) at(path string) (p oidclab.Page) {
	if b.err == nil {
		p, b.err = b.Get(b.Server + path)
	}
	return p
}

// submit sends a form of a page, with some fields filled in, to where one of its buttons has it.
func (b *plain) submit(of, to string, fill url.Values) (p oidclab.Page) {
	p = b.at(of)
	if b.err != nil {
		return p
	}
	fields, ok := p.FormFor(to)
	if !ok {
		b.err = fmt.Errorf("%s has no form for %s: %d %.600s", of, to, p.Status, p.Text)
		return p
	}
	for name, values := range fill {
		fields[name] = values
	}
	p, b.err = b.Send(http.MethodPost, b.Server+to, fields, "same-origin")
	return p
}

// holds notes what a page does not have.
func (b *plain) holds(p oidclab.Page, want ...string) {
	for _, w := range want {
		if b.err == nil && !strings.Contains(p.Text, w) {
			b.err = fmt.Errorf("%s has no %q: %d %.2000s", p.URL, w, p.Status, p.Text)
		}
	}
}

// becomes loads a page until it has a text.
func (b *plain) becomes(path, want string) {
	if b.err != nil {
		return
	}
	b.err = serverlab.Await(context.Background(), stepTime, func() error {
		p := b.at(path)
		if b.holds(p, want); b.err == nil {
			return nil
		}
		err := b.err
		b.err = nil
		time.Sleep(time.Second) // as somebody who presses reload
		return errors.Join(err)
	})
}
