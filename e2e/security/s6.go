package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
)

const (
	refusedCalls = 500
	mostRecorded = 50 // refusals of one user in a few minutes
	manyChanges  = 6000
)

// refusalsWithoutEnd: a user without a role is refused without end, to fill the audit log.
func refusalsWithoutEnd(ctx context.Context, s *site) error {
	a, err := s.tenants(ctx)
	if err != nil {
		return err
	}
	defer a.close()
	p, err := a.person(ctx, "eve")
	if err != nil {
		return err
	}
	if err := inParallel(8, refusedCalls, func(n int) error {
		status, text, err := p.call(ctx, "DELETE", fmt.Sprintf("/v1/users/x%d", n), "")
		if err == nil && status != http.StatusForbidden && status != http.StatusTooManyRequests {
			err = fmt.Errorf("%d %s", status, text)
		}
		return err
	}); err != nil {
		return err
	}
	status, text, err := p.call(ctx, "GET", "/v1/audit?who=eve&limit=1000", "")
	if err != nil || status != http.StatusOK {
		return fmt.Errorf("%d %s %w", status, text, err)
	}
	var log struct{ Items []json.RawMessage }
	if err := json.Unmarshal([]byte(text), &log); err != nil {
		return err
	}
	if n := len(log.Items); n == 0 || n > mostRecorded {
		return breach("%d refusals of one user leave %d entries in the audit log", refusedCalls, n)
	}
	return nil
}

// changesWithoutEnd: a user makes changes without end, here by requests that are refused, as quickly as the server
// answers. Reads of the same user go on, and changes of others.
func changesWithoutEnd(ctx context.Context, s *site) error {
	a, err := s.tenants(ctx)
	if err != nil {
		return err
	}
	defer a.close()
	eve, err := a.person(ctx, "eve")
	if err != nil {
		return err
	}
	var refused atomic.Int64
	if err := inParallel(8, manyChanges, func(n int) error {
		status, text, err := eve.call(ctx, "DELETE", fmt.Sprintf("/v1/users/x%d", n), "")
		switch {
		case err != nil:
		case status == http.StatusTooManyRequests:
			refused.Add(1)
		case status != http.StatusForbidden:
			err = fmt.Errorf("%d %s", status, text)
		}
		return err
	}); err != nil {
		return err
	}
	if refused.Load() == 0 {
		return breach("the server took %d changes of one user in a row", manyChanges)
	}
	bob, err := a.person(ctx, "bob")
	if err != nil {
		return err
	}
	for _, c := range []struct {
		who          *person
		method, path string
		want         int
	}{{eve, "GET", "/v1/vms", http.StatusOK}, {bob, "DELETE", "/v1/users/x", http.StatusForbidden}} {
		if status, text, err := c.who.call(ctx, c.method, c.path, ""); err != nil || status != c.want {
			return fmt.Errorf("%s %s: %d %s: %w", c.method, c.path, status, text, cmp.Or(err, errNotServed))
		}
	}
	return nil
}

var errNotServed = errors.New("the request is not served beside those")
