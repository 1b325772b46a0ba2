package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/e2e/farm/farmlab"
	"github.com/grange-project/grange/internal/farm"
)

// agentTooNew is an upgrade in the wrong order.
func (u *upgrade) agentTooNew(ctx context.Context) error {
	if err := u.swapAgent(ctx, last, u.builds.later); err != nil {
		return err
	}
	if err := u.saidEverywhere(ctx, last, farm.CodeAgentNew, "update the server first"); err != nil {
		return err
	}
	if err := u.restartAgent(ctx, last, u.builds.now); err != nil {
		return err
	}
	return u.quiet(ctx)
}

// agentsTooOld is a server that was upgraded too far at once.
func (u *upgrade) agentsTooOld(ctx context.Context) error {
	s := u.farm.Servers[0]
	if err := s.Stop(); err != nil {
		return err
	}
	s.Binary = grange(u.builds.later)
	if err := s.Start(ctx); err != nil {
		return err
	}
	for i := range u.farm.Hosts {
		if err := u.saidEverywhere(ctx, i, farm.CodeAgentOld, "update grange on the host"); err != nil {
			return err
		}
	}
	if err := s.Stop(); err != nil {
		return err
	}
	s.Binary = grange(u.builds.now)
	if err := s.Start(ctx); err != nil {
		return err
	}
	// A refused agent asks again after minutes; who has put things right does not wait for that.
	since := time.Now()
	errs := make([]error, hosts)
	var all sync.WaitGroup
	for i, h := range u.farm.Hosts {
		h.StopAgent()
		all.Go(func() { errs[i] = h.StartAgent(ctx) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	if err := u.heard(ctx, since); err != nil {
		return err
	}
	if err := u.look(ctx); err != nil {
		return err
	}
	return u.quiet(ctx)
}

// saidEverywhere sees that a refusal, with what to do, is where operators look: in the journals of agent and server,
// and in what both show of the host.
func (u *upgrade) saidEverywhere(ctx context.Context, number int, code farm.Code, try string) error {
	h, name := u.farm.Hosts[number], farmlab.HostName(number)
	places := map[string]func() (string, error){
		"the agent's journal": func() (string, error) { return h.AgentLog(), nil },
		"the server's journal": func() (string, error) {
			return lines(u.farm.Servers[0].Log(), name),
				nil
		},
		"grange host show on the host":        func() (string, error) { return output(h.Grange(ctx, "host", "show")) },
		"grange host show HOST of the server": func() (string, error) { return u.farm.Run(ctx, "host", "show", name) },
	}
	for place, read := range places {
		err := farmlab.Await(ctx, time.Minute, fmt.Sprintf("%s says %s of %s", place, code, name),
			func() (bool, error) {
				text, err := read()
				return err == nil && strings.Contains(text, string(code)) && strings.Contains(text, try), err
			})
		if err != nil {
			return err
		}
	}
	u.figures.Refused++
	return nil
}

// lines are those of a text that have a word.
func lines(text, word string) string {
	var found strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			found.WriteString(line)
		}
	}
	return found.String()
}

// quiet sees that no refusal is shown any more.
func (u *upgrade) quiet(ctx context.Context) error {
	for i, h := range u.farm.Hosts {
		at, err := u.farm.Run(ctx, "host", "show", farmlab.HostName(i))
		if err != nil {
			return err
		}
		here, err := output(h.Grange(ctx, "host", "show"))
		if err != nil {
			return err
		}
		if strings.Contains(at, "refused") || strings.Contains(here, "no link") {
			return fmt.Errorf("%s works, and this is shown of it:\n%s\n%s", farmlab.HostName(i), at, here)
		}
	}
	return nil
}
