package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
)

// hostsOfLists: a member lists the VMs of a host that it may not see, and of one that is not there.
func hostsOfLists(ctx context.Context, s *site) error {
	a, err := s.tenants(ctx)
	if err != nil {
		return err
	}
	defer a.close()
	there, absent := a.answerToAnn(ctx, "vm", "list", "--host", victim),
		a.answerToAnn(ctx, "vm", "list", "--host", "first-99999")
	if strings.ReplaceAll(absent, "first-99999", victim) != there {
		return breach("the answers differ:\n%s\n%s", there, absent)
	}
	return nil
}

const (
	openers          = 3    // members of one project
	mostOfOpener     = 2000 // incidents of one opener
	mostOfProject    = 5000 // incidents of one project
	refusedIncidents = 20   // in a row, after which an opener gives up
)

// fullOfIncidents: the members of one project open as many incidents as they can.
func fullOfIncidents(ctx context.Context, s *site) error {
	var more strings.Builder
	for n := range openers {
		fmt.Fprintf(&more, "\n[users.cat%d]\n[[grants]]\nuser = \"cat%d\"\nrole = \"member\"\nproject = \"one\"\n", n, n)
	}
	a, err := s.tenants(ctx, more.String())
	if err != nil {
		return err
	}
	defer a.close()
	opened := 0
	for n := range openers {
		p, err := a.person(ctx, fmt.Sprintf("cat%d", n))
		if err != nil {
			return err
		}
		of, err := p.openMany(ctx)
		if err != nil {
			return err
		}
		opened += of
	}
	for user, project := range map[string]string{"ann": "one", "bob": "two"} {
		p, err := a.person(ctx, user)
		if err != nil {
			return err
		}
		if status, text, err := p.open(ctx, project); err != nil || status != http.StatusCreated {
			return breach("%s opens no incident of project %s: %d %s %v", user, project, status, text, err)
		}
	}
	if opened > mostOfProject {
		return breach("%d members of one project opened %d incidents", openers, opened)
	}
	return nil
}

func (p *person) open(ctx context.Context, project string) (status int, text string, err error) {
	return p.call(ctx, "POST", "/v1/incidents",
		fmt.Sprintf(`{"title": "full", "concerns": {"projects": [%q]}}`, project))
}

// openMany opens incidents of project one until the server refuses some in a row, and returns how many.
func (p *person) openMany(ctx context.Context) (opened int, err error) {
	var of, refused atomic.Int32
	enough := errors.New("enough")
	err = inParallel(8, mostOfOpener, func(int) error {
		status, text, err := p.open(ctx, "one")
		switch {
		case err != nil:
			return err
		case status == http.StatusCreated:
			of.Add(1)
			refused.Store(0)
			return nil
		case status != http.StatusConflict && status != http.StatusTooManyRequests:
			return fmt.Errorf("%d %s", status, text)
		case refused.Add(1) > refusedIncidents:
			return enough
		}
		return nil
	})
	if errors.Is(err, enough) {
		err = nil
	}
	return int(of.Load()), err
}
