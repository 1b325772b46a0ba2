package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

const (
	refusedCalls = 500
	mostRecorded = 50 // refusals of one user in a few minutes
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
