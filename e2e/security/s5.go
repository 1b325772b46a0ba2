package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

const (
	mostGroups = 100 // server groups of a project
	manyGroups = 300
)

// groupsWithoutEnd: a member makes server groups, as many as it likes.
func groupsWithoutEnd(ctx context.Context, s *site) error {
	a, err := s.tenants(ctx)
	if err != nil {
		return err
	}
	defer a.close()
	p, err := a.person(ctx, "ann")
	if err != nil {
		return err
	}
	enough := errors.New("enough")
	err = inParallel(8, manyGroups, func(n int) error {
		status, text, err := p.call(ctx, "PUT", fmt.Sprintf("/v1/groups/one/g%d", n), `{"affinity": "soft-affinity"}`)
		switch {
		case err != nil || status == http.StatusOK:
			return err
		case status == http.StatusForbidden || status == http.StatusTooManyRequests:
			return enough
		}
		return fmt.Errorf("%d %s", status, text)
	})
	if err == nil {
		return breach("a member made %d server groups of a project, not %d", manyGroups, mostGroups)
	}
	if errors.Is(err, enough) {
		err = nil
	}
	return err
}

const (
	ownVMs     = 2000 // of the member who lists
	atOnce     = 100  // VMs of a request
	listers    = 16   // requests of that member at a time
	otherCalls = 20   // of another one
	fairShare  = 3    // how many times faster the other one is served
)

// listsWithoutEnd: a member has the server read all that its project has, many times at once. Another member, who asks
// once at a time, waits for few of these requests.
func listsWithoutEnd(ctx context.Context, s *site) error {
	a, err := s.tenants(ctx)
	if err != nil {
		return err
	}
	defer a.close()
	ann, err := a.person(ctx, "ann")
	if err != nil {
		return err
	}
	bob, err := a.person(ctx, "bob")
	if err != nil {
		return err
	}
	for n := range ownVMs / atOnce {
		status, text, err := ann.call(ctx, "POST", "/v1/vms", fmt.Sprintf(
			`{"project": "one", "name": "v%d", "count": %d, "image": "micro", "shape": "tiny"}`, n, atOnce))
		if err != nil || status != http.StatusCreated {
			return fmt.Errorf("make VMs: %d %s %w", status, text, err)
		}
	}
	ctx, stop := context.WithCancel(ctx)
	took := make(chan time.Duration, 100_000)
	ended := make(chan error, 1)
	go func() {
		ended <- inParallel(listers, cap(took), func(int) error {
			d, err := ann.timed(ctx, "/v1/security-groups?project=one&limit=1")
			took <- d
			return err
		})
	}()
	<-took // they have begun
	var others []time.Duration
	for range otherCalls {
		d, failed := bob.timed(ctx, "/v1/vms?project=two")
		if err = failed; err != nil {
			break
		}
		others = append(others, d)
	}
	stop()
	<-ended
	close(took)
	var own []time.Duration
	for d := range took {
		own = append(own, d)
	}
	if err != nil {
		return err
	}
	if own, other := median(own), median(others); other*fairShare > own {
		return breach("a member who sends %d requests at a time is answered in %v, and one who sends one in %v",
			listers, own, other)
	}
	return nil
}

// timed returns how long an answer takes.
func (p *person) timed(ctx context.Context, path string) (time.Duration, error) {
	began := time.Now()
	status, text, err := p.call(ctx, "GET", path, "")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%d %s", status, text)
	}
	return time.Since(began), err
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}
