package agent

import (
	"errors"
	"log/slog"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/journal"
)

// Logs of a VM or a job carry which it is, whose, and for which job of the batch system: systemd's journal has fields
// of these.

// log is for what is about this VM. v.mu is not held.
func (v *vm) log() *slog.Logger {
	r := v.recordNow()
	return v.agent.log.With("vm", r.Name, "user", r.User).With(journal.JobAttrs(v.key, v.id)...)
}

// log is for what is about this job of its VM.
func (j *job) log() *slog.Logger {
	return j.agent.log.With("vm", j.vm.recordNow().Name, "user", j.record.User).
		With(journal.JobAttrs(j.vm.key, j.id)...)
}

// endLevel tells the end of a job that this host could not run from others: what the caller did, or asked for, is no
// fault of the host's.
func endLevel(err error) slog.Level {
	own := new(farm.Error)
	switch {
	case err == nil, errors.Is(err, errCallerGone), errors.Is(err, errGivenBack):
		return slog.LevelInfo
	case errors.As(err, &own) && own.Kind != farm.Unavailable && own.Kind != farm.Internal:
		return slog.LevelInfo
	}
	return slog.LevelWarn
}
