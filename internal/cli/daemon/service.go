package daemon

import (
	"context"
	"log/slog"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/sdnotify"
	"github.com/grange-project/grange/internal/server"
)

// notify reports to systemd.
func notify(log *slog.Logger, state string) {
	if err := sdnotify.Send(state); err != nil {
		log.Warn("cannot notify systemd of the service's state", "error", err)
	}
}

// keepAlive has systemd start the service again when works does not return nil for the watchdog's time.
func keepAlive(ctx context.Context, log *slog.Logger, works func(context.Context) error) {
	go sdnotify.KeepAlive(ctx, works,
		func(err error) { log.Error("this service does not answer itself", "error", err) })
}

// keepServerAlive does so for a server: its socket, where it has one, and the loop of the lease.
func keepServerAlive(ctx context.Context, c config.Server, s *server.Server, log *slog.Logger) error {
	answers := func(context.Context) error { return nil }
	if c.Socket != "" {
		client, err := fleet.NewClient(fleet.Config{Server: "unix://" + c.Socket})
		if err != nil {
			return err
		}
		answers = func(ctx context.Context) error { _, err := client.Version(ctx); return err }
	}
	keepAlive(ctx, log, func(ctx context.Context) error {
		if err := s.Works(); err != nil {
			return err
		}
		return answers(ctx)
	})
	return nil
}
