package cli

import (
	"context"
	"log/slog"
	"os"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/journal"
	"github.com/grange-project/grange/internal/sdnotify"
	"github.com/grange-project/grange/internal/server"
)

// inJournal reports whether what is written to standard error goes to systemd's journal.
func (a *app) inJournal() bool { return a.err == text{os.Stderr} && journal.Connected(os.Stderr) }

// serviceLog is where a service logs to: the journal where its standard error is that, and else standard error, as
// text.
func (a *app) serviceLog(name string) *slog.Logger {
	if a.inJournal() {
		return slog.New(journal.NewHandler(journal.Socket, name))
	}
	return slog.New(slog.NewTextHandler(a.err, nil))
}

// notify reports to systemd.
func notify(log *slog.Logger, state string) {
	if err := sdnotify.Send(state); err != nil {
		log.Warn("systemd cannot be told how the service does", "error", err)
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
