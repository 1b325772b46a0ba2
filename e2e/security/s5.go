package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
