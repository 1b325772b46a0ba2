// Package runnertest is an agent for tests of what asks for jobs.
package runnertest

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/grange-project/grange/api"
)

// Agent answers on a socket of its own, and keeps what it was asked for.
type Agent struct {
	Socket  string
	Grant   any  // an api.Grant or *api.Problem
	Job     any  // *api.Problem; func(http.ResponseWriter); or nil: the job fails as one whose VM came to nothing
	Goes    bool // after that
	Request *api.JobRequest
	Asked   bool // for a grant
	server  *http.Server
}

// Start starts an agent, which ends with the test.
func Start(t *testing.T, grant, job any) *Agent {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ga") // short: it holds a unix socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	a := &Agent{Socket: filepath.Join(dir, "s"), Grant: grant, Job: job}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/grant", func(w http.ResponseWriter, _ *http.Request) { a.Asked = true; answer(w, a.Grant) })
	mux.HandleFunc("POST /v1/jobs", a.job)
	mux.HandleFunc("POST /v1/jobs/{id}/{what}",
		func(w http.ResponseWriter, _ *http.Request) { answer(w, api.JobEnd{}) })
	listener, err := net.Listen("unix", a.Socket)
	if err != nil {
		t.Fatal(err)
	}
	a.server = &http.Server{Handler: mux}
	go a.server.Serve(listener)
	t.Cleanup(func() { a.server.Close() })
	return a
}

func answer(w http.ResponseWriter, v any) {
	if p, ok := v.(*api.Problem); ok {
		w.WriteHeader(p.Status)
	}
	json.NewEncoder(w).Encode(v)
}

func (a *Agent) job(w http.ResponseWriter, r *http.Request) {
	a.Request = new(api.JobRequest)
	json.NewDecoder(r.Body).Decode(a.Request)
	if play, ok := a.Job.(func(http.ResponseWriter)); ok {
		play(w)
		if a.Goes {
			a.server.Close()
		}
		return
	}
	if a.Job != nil {
		answer(w, a.Job)
		return
	}
	answer(w, api.JobEvent{Event: api.EventFailed,
		Problem: &api.Problem{Type: "grange:guest-silent", Status: 503, Detail: "the guest did not come up"}})
}
