package agent

import (
	"log/slog"
	"time"
)

// repeatedEvery is how often a fault that does not end is logged again, with how often it was met.
const repeatedEvery = time.Hour

// repeated logs a fault that is met again and again once, then counts it. It is used by one goroutine.
type repeated struct {
	text  string // of the last fault; "": there is none
	count int    // since it was logged
	at    time.Time
}

// log takes the outcome of one more attempt; nil ends a fault.
func (r *repeated) log(log *slog.Logger, what string, err error) {
	now := time.Now()
	switch {
	case err == nil && r.text == "":
	case err == nil:
		log.Info(what+": works again", "after", r.text, "times", r.count)
		*r = repeated{}
	case err.Error() != r.text:
		log.Error(what, "error", err)
		*r = repeated{text: err.Error(), count: 1, at: now}
	default:
		r.count++
		if now.Sub(r.at) >= repeatedEvery {
			log.Error(what, "error", err, "times", r.count)
			r.at = now
		}
	}
}
