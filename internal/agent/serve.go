package agent

import (
	"encoding/json"
	"net/http"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/admission"
	"github.com/grange-project/grange/internal/agent/jobrequest"
	"github.com/grange-project/grange/internal/agent/publish"
	"github.com/grange-project/grange/internal/farm"
)

func (a routes) handler() http.Handler {
	mux := http.NewServeMux()
	for _, actions := range []map[string]action{a.actions(), newImageRoutes(a.Agent).actions()} {
		for pattern, do := range actions {
			mux.HandleFunc(pattern, a.edge(do))
		}
	}
	return mux
}

// actions are what the socket serves, but for images: see imageRoutes.
func (a routes) actions() map[string]action {
	return map[string]action{
		"POST /v1/jobs":             a.postJob,
		"POST /v1/jobs/{id}/done":   a.postDone,
		"POST /v1/jobs/{id}/beats":  a.postHeartbeats,
		"POST /v1/jobs/{id}/active": a.postActive,
		"GET /v1/pools":             a.getPools,
		"GET /v1/grant":             a.getGrant,
		"GET /v1/publish/{name}": func(w http.ResponseWriter, r *http.Request, _ Caller) error {
			return publish.Serve(w, r, a.config().Publish, a.names)
		},
		"GET /v1/vms":                    a.known(a.getVMs),
		"GET /v1/vms/{vm}":               a.known(a.getVM),
		"DELETE /v1/vms/{vm}":            a.known(a.deleteVM),
		"POST /v1/vms/{vm}/suspend":      a.known(a.postSuspend),
		"POST /v1/vms/{vm}/resume":       a.known(a.postResume),
		"GET /v1/vms/{vm}/console":       a.known(a.getConsole),
		"GET /v1/host":                   a.getHost,
		"GET /v1/services":               a.getServices,
		"GET /v1/alive":                  a.getAlive,
		"GET /v1/usage":                  a.getUsage,
		"POST /v1/drain":                 a.postDrain,
		"GET /metrics":                   a.getMetrics,
		"DELETE /v1/drain":               a.known(a.deleteDrain),
		"POST /v1/file-systems/drains":   a.known(a.postFileSystemDrain),
		"GET /v1/file-systems/drains":    a.known(a.getFileSystemDrains),
		"DELETE /v1/file-systems/drains": a.known(a.deleteFileSystemDrain),
		"GET /v1/claims":                 a.known(a.getClaims),
		"POST /v1/claims":                a.known(a.postClaim),
		"DELETE /v1/claims/{key...}":     a.known(a.deleteClaim),
		"GET /v1/networks":               a.known(a.getNetworks),
		"GET /v1/networks/{name}":        a.known(a.getNetwork),
		"POST /v1/workers":               a.known(a.postWorker),
		"GET /v1/workers":                a.known(a.getWorkers),
		"DELETE /v1/workers/{name}":      a.known(a.deleteWorker),
		"POST /v1/workers/{name}/up":     a.known(a.postWorkerUp),
	}
}

// edge finds out who calls and turns errors into problems.
func (a routes) edge(do action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connKey{}).(*admission.Connection)
		defer conn.Serves()()
		c, err := callerIn(a.Agent, conn)
		if err == nil {
			err = do(w, r, c)
		}
		if err == nil || r.Context().Err() != nil {
			return // in the second case nobody is there to read it
		}
		p := problemOf(err)
		if p.Status == http.StatusInternalServerError {
			a.log.Error("request failed", "method", r.Method, "path", r.URL.Path, "uid", c.UID, "error", err)
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(p.Status)
		json.NewEncoder(w).Encode(p)
	}
}

// postJob makes a job, or joins the one with this ID, and tells what happens until the job is over. The open connection
// is the caller's claim on its VM: when the last one closes, the VM goes.
func (a routes) postJob(w http.ResponseWriter, r *http.Request, c Caller) error {
	var request api.JobRequest
	if err := a.decode(w, r, c, &request); err != nil {
		return err
	}
	restoreRaw(&request)
	if err := jobrequest.Check(&request); err != nil {
		return err
	}
	waited, err := a.awaitTurn(w, r, &request)
	var j *job
	var fresh bool
	if err == nil {
		j, fresh, err = a.admit(&request, c)
	}
	if err == nil && !fresh {
		err = j.join(&request, c)
	}
	if err != nil && waited {
		return refuse(w, &request, err)
	}
	if err != nil {
		return err
	}
	if fresh {
		a.jobs.Go(j.run)
	}
	if request.Heartbeats {
		j.vm.power.Expect()
	}
	defer j.callerLeft()
	j.follow(r.Context(), lines[api.JobEvent](w))
	return nil
}

// join lets the caller of a job come again, after this agent or its connection was cut. Its request counts only where
// this agent has none, and only if it is what was allowed.
func (j *job) join(r *api.JobRequest, c Caller) error {
	if c.UID != j.caller.UID {
		return notYours("job " + j.id)
	}
	j.mu.Lock()
	known := j.request != nil
	j.mu.Unlock()
	if known {
		return nil
	}
	if err := j.judge(r, c); err != nil {
		return err
	}
	j.update(func() {
		if j.request == nil {
			j.request = r
		}
	})
	return nil
}

// postDone gives the VM back, and answers when it is gone.
func (a routes) postDone(w http.ResponseWriter, r *http.Request, c Caller) error {
	if err := a.awaitKnown(r.Context(), nil); err != nil {
		return err
	}
	j := a.byID(r.PathValue("id"))
	if j == nil {
		return answer(w, api.JobEnd{})
	}
	if !c.owns(j.caller) && !c.admin() {
		return notYours("job " + j.id)
	}
	if j.keeps() {
		return answer(w, api.JobEnd{})
	}
	j.cancel(errGivenBack)
	select {
	case <-j.over:
	case <-r.Context().Done():
		return nil
	}
	return answer(w, api.JobEnd{Phases: j.clean})
}

func (a routes) getConsole(w http.ResponseWriter, r *http.Request, c Caller) error {
	once := r.URL.Query().Get("follow") != "true"
	control := http.NewResponseController(w)
	flush := func() { control.Flush() }
	if v := a.Cloud.LookUp(r.PathValue("vm")); v != nil { // root alone may: the VM's owner asks the server
		if !a.maySee(c, nobody) {
			return noVM(r.PathValue("vm"))
		}
		if !c.admin() {
			return notYours("VM " + v.Name)
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		return v.Console(r.Context(), w, flush, once)
	}
	v, err := a.find(r.PathValue("vm"), c)
	if err != nil {
		return err
	}
	m := v.current()
	if m == nil {
		return &farm.Error{Kind: farm.Conflict, Code: farm.CodeNoVM,
			Message: v.recordNow().Name + " has no console yet", Hint: "try again in a moment"}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	return m.Console.Follow(r.Context(), w, flush, once)
}

func (a routes) postSuspend(w http.ResponseWriter, r *http.Request, c Caller) error {
	return a.pause(w, r, c, true)
}

func (a routes) postResume(w http.ResponseWriter, r *http.Request, c Caller) error {
	return a.pause(w, r, c, false)
}

func (a routes) pause(w http.ResponseWriter, r *http.Request, c Caller, suspend bool) error {
	v, err := a.find(r.PathValue("vm"), c)
	if err == nil {
		err = v.pause(r.Context(), suspend)
	}
	if err != nil {
		return err
	}
	return answer(w, v.view(nil))
}

func (a routes) deleteVM(w http.ResponseWriter, r *http.Request, c Caller) error {
	v, err := a.find(r.PathValue("vm"), c)
	if err != nil {
		return err
	}
	v.cancel(errStopped)
	select {
	case <-v.over:
	case <-r.Context().Done():
	}
	return answer(w, v.view(nil))
}
