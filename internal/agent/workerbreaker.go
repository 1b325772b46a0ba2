package agent

import (
	"net/http"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/breaker"
)

// A worker's VM has started when its node has come: a guest that is up, with a daemon that never registers, is of no
// use to anybody. So its ticket stays until somebody who sees the batch system says so, or the VM ends. An agent that
// starts anew knows of no tickets, and blames nobody.

// tooLate is what the last words of a back-off say of workers that boot for ever.
const tooLate = "its node did not come in time"

// workerCame: the worker's node has registered.
func (a workerDesk) workerCame(v *vm) {
	b := &a.breakers
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.takeTicket(v.id); t != nil && b.set.Started(time.Now(), t) {
		v.log().Info("host healed")
	}
}

// workerWent: the worker's VM has ended, or is about to. failed: before its node was seen, and nobody wanted it to.
func (a workerDesk) workerWent(v *vm, failed bool, cause string) {
	b := &a.breakers
	b.mu.Lock()
	defer b.mu.Unlock()
	switch t := b.takeTicket(v.id); {
	case t == nil:
	case failed:
		for _, key := range b.set.Failed(time.Now(), t, breaker.Unclear, cause) {
			a.log.Error("backs off", "what", key.String(), "image", t.Image, "worker", v.recordNow().Worker.Name,
				"error", cause)
		}
	default:
		b.set.Left(t)
	}
}

// workerLate: the batch system has given the worker's node up.
func (a workerDesk) workerLate(v *vm) {
	b := &a.breakers
	b.mu.Lock()
	_, waits := b.starting[v.id]
	if waits { // and will hear of it
		b.starting[v.id] = true
	}
	b.mu.Unlock()
	if !waits {
		a.workerWent(v, true, tooLate)
	}
}

// unseen reports whether the node of a worker that runs has not been seen yet.
func (a workerDesk) unseen(v *vm) bool {
	a.breakers.mu.Lock()
	defer a.breakers.mu.Unlock()
	return a.breakers.pending[v.id] != nil
}

// postWorkerUp is told when a worker's node has registered.
func (a routes) postWorkerUp(w http.ResponseWriter, r *http.Request, c Caller) error {
	if err := a.workerDesk.mayWork(c); err != nil {
		return err
	}
	name := r.PathValue("name")
	v := a.workerDesk.worker(name)
	if v == nil {
		return answer(w, api.Worker{Name: name, State: api.WorkerEnded})
	}
	a.workerDesk.workerCame(v)
	return answer(w, v.workerView())
}
