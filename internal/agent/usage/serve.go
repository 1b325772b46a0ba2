package usage

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

// sendLimit is how long a reader may take for one record.
const sendLimit = 30 * time.Second

// CodeReadsUsage is of a user who reads records of usage already: each reading goes through all there are.
const CodeReadsUsage farm.Code = "reads-usage"

// Serve streams the records of VMs that ended within a time: those of one user's jobs and workers, or all.
func (d *Desk) Serve(w http.ResponseWriter, r *http.Request, uid uint32, all bool) error {
	from, to, err := span(r.URL.Query())
	if err != nil {
		return err
	}
	if !d.enter(uid) {
		return &farm.Error{Kind: farm.Conflict, Code: CodeReadsUsage,
			Message: "you read records of usage of this host already", Hint: "try again when that has ended"}
	}
	defer d.leave(uid)
	w.Header().Set("Content-Type", "application/x-ndjson")
	control, encoder := http.NewResponseController(w), json.NewEncoder(w)
	defer control.SetWriteDeadline(time.Time{}) // the next request on the connection has its own
	return d.Each(from, to, func(u api.Usage) error {
		if err := r.Context().Err(); err != nil {
			return err
		}
		if !all && (u.Kind == api.UsageVM || u.UID != uid) {
			return nil
		}
		if err := control.SetWriteDeadline(time.Now().Add(sendLimit)); err != nil {
			return err
		}
		if err := encoder.Encode(u); err != nil {
			return err
		}
		return control.Flush()
	})
}

func (d *Desk) enter(uid uint32) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.readers[uid] {
		return false
	}
	d.readers[uid] = true
	return true
}

func (d *Desk) leave(uid uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.readers, uid)
}

// span reads the time of a query: from and to, in RFC 3339; without them it is all there is.
func span(query url.Values) (from, to time.Time, err error) {
	to = time.Unix(1<<40, 0)
	for name, into := range map[string]*time.Time{"from": &from, "to": &to} {
		text := query.Get(name)
		if text == "" {
			continue
		}
		if *into, err = time.Parse(time.RFC3339, text); err != nil {
			return from, to, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest,
				Message: fmt.Sprintf("invalid time %q of %s", text, name), Hint: "write it as 2026-10-01T00:00:00Z"}
		}
	}
	return from, to, nil
}
