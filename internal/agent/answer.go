package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/admission"
	"github.com/grange-project/grange/internal/disk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/wire"
)

// routes are what the agent's socket serves. They see all of the agent, which knows none of them.
type routes struct{ *Agent }

// action is one route: it knows its caller, and its error becomes a Problem.
type action func(w http.ResponseWriter, r *http.Request, c Caller) error

// decode reads the body of a request.
func (a routes) decode(w http.ResponseWriter, r *http.Request, c Caller, into any) error {
	if size := r.ContentLength; !c.admin() {
		if size < 0 || size > maxRequest {
			size = maxRequest
		}
		done, err := a.admission.Read(r.Context(), c.share(a.Agent), size)
		if err != nil {
			return err
		}
		defer done()
	}
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(bodyTime))
	defer control.SetReadDeadline(time.Time{}) // its end is watched for as long as the job lasts
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(into)
	if err == nil {
		// net/http watches for the caller's end only behind the body
		_, err = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, admission.SmallBody))
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &farm.Error{Kind: farm.Unavailable, Code: CodeSlowRequest,
			Message: fmt.Sprintf("the request did not come within %v", bodyTime),
			Hint:    "try again; a caller that is stopped sends nothing"}
	case err != nil:
		return badRequest("the request is not the JSON we expect: %v", err)
	}
	return nil
}

// a job may bring a script of 64 MiB, which is a third more in JSON, and a large environment
const maxRequest = 128 << 20

// bodyTime is long for 128 MiB from a process of this host, and no time to starve others in.
var bodyTime = time.Minute

func answer(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(v)
}

// lines answers with one JSON text a line, each sent at once.
func lines[T any](w http.ResponseWriter) func(T) error {
	w.Header().Set("Content-Type", "application/x-ndjson")
	control := http.NewResponseController(w)
	encoder := json.NewEncoder(w)
	return func(v T) error {
		if err := encoder.Encode(v); err != nil {
			return err
		}
		return control.Flush()
	}
}

// problemOf makes an error fit for people.
func problemOf(err error) *api.Problem { return wire.Problem(disk.NoSpace(err), "the agent's log") }

func badRequest(format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest, Message: fmt.Sprintf(format, args...),
		Hint: "see `grange exec --help`"}
}

func notYours(what string) error {
	return &farm.Error{Kind: farm.Denied, Code: farm.CodeNotYours, Message: what + " belongs to someone else",
		Hint: "its owner or root may do that"}
}
