package agent

import (
	"io"
	"net/http"
)

// postBeats reads a byte whenever the caller says that it is not stopped. Without beats the VM is paused, with the next one it
// goes on: batch systems stop jobs by signals that cannot be caught.
func (a *Agent) postBeats(w http.ResponseWriter, r *http.Request, c Caller) error {
	j := a.byID(r.PathValue("id"))
	if j == nil {
		return answer(w, struct{}{})
	}
	if c.UID != j.caller.UID {
		return notYours("job " + j.id)
	}
	io.Copy(io.Discard, r.Body)
	return answer(w, struct{}{})
}
