package journal

import (
	"log/slog"
	"sync"
	"time"
)

// repeatedEvery is how often a fault that does not end is logged again, with how often it was met.
const repeatedEvery = time.Hour

// Repeated logs a fault that is met again and again once, then counts it.
type Repeated struct {
	mu    sync.Mutex
	text  string // of the last fault; "": there is none
	count int    // since it was logged
	at    time.Time
}

// Log takes the outcome of one more attempt; nil ends a fault.
func (r *Repeated) Log(log *slog.Logger, what string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	switch {
	case err == nil && r.text == "":
	case err == nil:
		log.Info(what+": works again", "after", r.text, "times", r.count)
		r.text = ""
	case err.Error() != r.text:
		log.Error(what, "error", err)
		r.text, r.count, r.at = err.Error(), 1, now
	default:
		r.count++
		if now.Sub(r.at) >= repeatedEvery {
			log.Error(what, "error", err, "times", r.count)
			r.at = now
		}
	}
}
