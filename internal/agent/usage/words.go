package usage

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

// Exited notes how a job in a VM ended, and what grange-guest says that it used. Of several the first that failed
// counts.
func Exited(u *api.Usage, e api.Exit) {
	cpu := (e.User + e.System).Seconds()
	if u.JobCPU != nil {
		cpu += *u.JobCPU
	}
	u.JobCPU, u.JobMemory = &cpu, max(u.JobMemory, uint64(max(e.MaxRSS, 0))<<10)
	u.Tasks++
	const good = "exit:0"
	if u.Ended != "" && u.Ended != good {
		return
	}
	u.Ended = fmt.Sprintf("exit:%d", e.Code)
	if e.Signal != 0 {
		u.Ended = fmt.Sprintf("signal:%d", e.Signal)
	}
}

// Failed notes why a VM or a job in it came to nothing, unless its job has said how it ended.
func Failed(u *api.Usage, err error) {
	if u.Ended != "" {
		return
	}
	u.Ended = string(farm.CodeInternal)
	if own := new(farm.Error); errors.As(err, &own) {
		u.Ended = string(own.Code)
	}
}

// Span reads the time of a query: from and to, in RFC 3339; without them it is all there is.
func Span(query url.Values) (from, to time.Time, err error) {
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
