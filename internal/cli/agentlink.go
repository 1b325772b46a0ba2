package cli

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/grange-project/grange/internal/agent"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/uplink"
)

// identityDir is where a host's identity is, for root alone.
func identityDir(c config.Agent) string { return filepath.Join(c.StateDir, "server") }

// openIdentityDir opens it, and makes it where it is not there.
func openIdentityDir(c config.Agent) (*os.Root, error) {
	dir := identityDir(c)
	if err := os.MkdirAll(c.StateDir, 0o755); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.OpenRoot(dir)
}

// joinedEvery is how often a host that has not joined looks whether it has.
const joinedEvery = 5 * time.Second

// keepLink links the agent to its server until ctx ends, from when both are there: the agent knows its host, and the
// host has joined.
func keepLink(ctx context.Context, c config.Agent, ag *agent.Agent, log *slog.Logger) error {
	select {
	case <-ctx.Done():
		return nil
	case <-ag.Cloud.Recovered():
	}
	dir, err := openIdentityDir(c)
	if err != nil {
		return err
	}
	defer dir.Close()
	said := false
	for ctx.Err() == nil {
		l, err := uplink.New(uplink.Options{Dir: dir, Host: ag.Cloud, Log: log,
			Servers: c.Server.URLs, Tell: ag.LinkIs})
		if err == nil {
			return l.Run(ctx)
		}
		own := new(farm.Error)
		if notJoined := errors.As(err, &own) && own.Kind == farm.NotFound; !said &&
			(!notJoined || len(c.Server.URLs) > 0) {
			log.Warn("no link to the server", "reason", err)
			said = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(joinedEvery):
		}
	}
	return nil
}
