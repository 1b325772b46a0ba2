package agent

import (
	"context"
	"net/http"
)

// postHeartbeats reads a byte whenever the caller says that it is not stopped. Without heartbeats the VM is paused,
// with the next one it goes on: batch systems stop jobs by signals that cannot be caught. The body has no end of its
// own.
func (a routes) postHeartbeats(w http.ResponseWriter, r *http.Request, c Caller) error {
	j := a.byID(r.PathValue("id"))
	if j == nil {
		return answer(w, struct{}{}) // it comes again, with a job by then
	}
	if c.UID != j.caller.UID {
		return notYours("job " + j.id)
	}
	var some [64]byte
	for {
		n, err := r.Body.Read(some[:])
		if n > 0 {
			j.vm.power.Heartbeat()
		}
		if err != nil {
			return nil // nobody is there to be answered
		}
	}
}

// followHeartbeats keeps the VM paused while its callers are silent, as long as the VM lasts.
func (v *vm) followHeartbeats() {
	ctx, cancel := context.WithCancel(v.agent.ctx)
	defer cancel()
	go func() { // ends with ctx
		select {
		case <-v.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	v.power.Run(ctx, v.attended, func(err error) {
		v.log().Warn("vm is not paused or resumed as its callers' heartbeats want it", "error", err)
	})
}

// attended reports whether the guest is up and some caller could send heartbeats.
func (v *vm) attended() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.up {
		return false
	}
	for _, j := range v.jobs {
		j.mu.Lock()
		followed := j.followers > 0
		j.mu.Unlock()
		if followed || j.caller.alive() {
			return true
		}
	}
	return false
}
