package cli

import (
	"log/slog"
	"os"

	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/journal"
)

// inJournal reports whether what is written to standard error goes to systemd's journal.
func (a *app) inJournal() bool {
	return a.err == output.Text{To: os.Stderr} && journal.Connected(os.Stderr)
}

// serviceLog is where a service logs to: the journal where its standard error is that, and else standard error, as
// text.
func (a *app) serviceLog(name string) *slog.Logger {
	if a.inJournal() {
		return slog.New(journal.NewHandler(journal.Socket, name))
	}
	return slog.New(slog.NewTextHandler(a.err, nil))
}
