package agent

import (
	"context"
	"net/http"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

// An agent serves at once, and learns behind that what runs on its host: its hypervisor may hang, refuse, or take
// minutes. Until it is known what runs nothing is granted and nothing is removed, for a VM that was not listed yet
// holds CPUs, memory and files. Requests that depend on it wait, and say why; all others are answered.

const (
	knownWithin = 5 * time.Second        // that a request waits which cannot say what for
	knownSoon   = 500 * time.Millisecond // that an agent needs after each start, which is not worth a word
)

// isKnown reports whether it is known what runs on the host.
func (a *Agent) isKnown() bool {
	select {
	case <-a.Cloud.Recovered():
		return true
	default:
		return false
	}
}

// unknown is why it is not known yet what runs on the host.
func (a *Agent) unknown() string {
	why := "libvirt has not answered yet"
	if d := a.hyper.Daemon(); d.Away != "" {
		why = d.Away
	}
	return "it is not known yet which VMs run on this host: " + why
}

// awaitKnown waits until it is known what runs on the host. It tells why it waits after a moment, and each time that
// changes.
func (a *Agent) awaitKnown(ctx context.Context, told func(why string)) error {
	last, tick := "", time.NewTicker(knownSoon)
	defer tick.Stop()
	for {
		select {
		case <-a.Cloud.Recovered():
			return nil
		case <-tick.C:
		case <-a.ctx.Done():
			return context.Cause(a.ctx)
		case <-ctx.Done():
			return &farm.Error{Kind: farm.Unavailable, Code: CodeRecovering, Message: a.unknown(),
				Hint: "try again in a moment; `grange host show` says what the agent waits for"}
		}
		if why := a.unknown(); told != nil && why != last {
			last = why
			told(why)
		}
	}
}

// known has a request wait a moment for it to be known what runs on the host.
func (a routes) known(do action) action {
	return func(w http.ResponseWriter, r *http.Request, c Caller) error {
		ctx, cancel := context.WithTimeout(r.Context(), knownWithin)
		defer cancel()
		if err := a.awaitKnown(ctx, nil); err != nil {
			return err
		}
		return do(w, r, c)
	}
}

// awaitTurn has a job wait until it is known what runs on the host, telling its caller why. sent reports whether the
// answer has begun: then an error is the caller's as an event.
func (a routes) awaitTurn(w http.ResponseWriter, r *http.Request, request *api.JobRequest) (sent bool, err error) {
	ctx, cancel := r.Context(), func() {}
	switch {
	case request.NoWait:
		ctx, cancel = context.WithTimeout(ctx, knownWithin)
	case request.Batch != "" && !request.Started:
		ctx, cancel = context.WithTimeout(ctx, a.config().Batch.WaitTimeout)
	}
	defer cancel()
	var send func(api.JobEvent) error
	err = a.awaitKnown(ctx, func(why string) {
		if send == nil {
			send = lines[api.JobEvent](w)
		}
		send(api.JobEvent{Event: api.EventWaiting, Message: why})
	})
	return send != nil, err
}

// refuse ends a job that has been waiting, with the reason for its caller.
func refuse(w http.ResponseWriter, request *api.JobRequest, err error) error {
	event := api.EventFailed
	if request.Started {
		event = api.EventLost
	}
	return lines[api.JobEvent](w)(api.JobEvent{Event: event, Problem: problemOf(err)})
}
