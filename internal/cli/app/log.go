package app

import (
	"log/slog"
	"os"

	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/journal"
)

// InJournal reports whether what is written to standard error goes to systemd's journal.
func (a *App) InJournal() bool {
	return a.Err == output.Text{To: os.Stderr} && journal.Connected(os.Stderr)
}

// ServiceLog is where a service logs to: the journal where its standard error is that, and else standard error, as
// text.
func (a *App) ServiceLog(name string) *slog.Logger {
	if a.InJournal() {
		return slog.New(journal.NewHandler(journal.Socket, name))
	}
	return slog.New(slog.NewTextHandler(a.Err, nil))
}
