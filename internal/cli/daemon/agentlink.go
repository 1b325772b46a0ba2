package daemon

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/grange-project/grange/internal/agent"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/uplink"
)

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
	dir, err := app.OpenIdentityDir(c)
	if err != nil {
		return err
	}
	defer dir.Close()
	said := false
	for ctx.Err() == nil {
		l, err := uplink.New(uplink.Options{Dir: dir, Host: ag.Cloud, Log: log,
			Images: ag.Images, Usage: ag.Usage, Jobs: ag, Servers: c.Server.URLs, Tell: ag.LinkIs})
		if err == nil {
			ag.Images.Via(l)
			return l.Run(ctx)
		}
		own := new(farm.Error)
		notJoined := errors.As(err, &own) && own.Kind == farm.NotFound
		if notJoined { // of no fleet: nobody else could end its drains
			ag.Cloud.Drains(nil)
		}
		if !said && (!notJoined || len(c.Server.URLs) > 0) {
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
