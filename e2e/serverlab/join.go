package serverlab

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/grange-project/grange/e2e/lab"
)

// Join has a real host join a cell, at a URL by which it reaches the server, and waits until it is open.
func (s *Server) Join(ctx context.Context, h *lab.Lab, cell, name, url string) error {
	token, err := s.Grange(ctx, "host", "token", "create", "--cell", cell)
	if err != nil {
		return err
	}
	file := s.Path("join-" + name)
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		return err
	}
	if out, err := h.Grange(ctx, "host", "join", "--config", h.Config, "--token-file", file, "--name", name, "--server",
		url).CombinedOutput(); err != nil {
		return fmt.Errorf("host join: %w\n%s", err, out)
	}
	return s.AwaitHost(ctx, name, h.AgentLog)
}

// AwaitHost waits until a host is open; log is what to look at where it does not come.
func (s *Server) AwaitHost(ctx context.Context, name string, log func() string) error {
	return Await(ctx, StartTime, func() error {
		out, err := s.Grange(ctx, "host", "show", name)
		if err == nil && !strings.Contains(out, "open") {
			err = fmt.Errorf("host %s does not come: %s\n%s", name, out, log())
		}
		return err
	})
}
