package agent

import (
	"errors"
	"log/slog"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// Logs of a VM or a job carry which it is, whose, and for which job of the batch system: systemd's journal has fields
// of these.

// log is for what is about this VM. v.mu is not held.
func (v *vm) log() *slog.Logger {
	r := v.recordNow()
	return v.agent.log.With("vm", r.Name, "user", r.User).With(jobAttrs(v.key, v.id)...)
}

// log is for what is about this job of its VM.
func (j *job) log() *slog.Logger {
	return j.agent.log.With("vm", j.vm.recordNow().Name, "user", j.record.User).With(jobAttrs(j.vm.key, j.id)...)
}

// log is for what is about this cloud VM. v.mu is not held.
func (v *fleetVM) log() *slog.Logger {
	log, r := v.agent.log.With("vm", v.name), v.recordNow()
	if r.Wanted.Owner != "" {
		log = log.With("user", r.Wanted.Owner)
	}
	if r.Job != "" {
		log = log.With(jobAttrs(r.Job, "")...)
	}
	return log
}

// jobAttrs are those of a job of a batch system, by farm.Allotment.Key, or of another with an ID.
func jobAttrs(key, id string) []any {
	if system, job, ok := strings.Cut(key, "/"); ok {
		return []any{"job", job, "system", system}
	}
	return []any{"job", id}
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
