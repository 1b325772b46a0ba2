package inherited

import (
	"os/signal"
	"syscall"

	"github.com/grange-project/grange/internal/inherited/early"
)

// notEarly are the ignored signals of a program that was linked without package early's entry. The runtime keeps these
// two alone.
var notEarly = ignoredOf(syscall.SIGHUP, syscall.SIGINT)

func ignoredOf(signals ...syscall.Signal) (mask uint64) {
	for _, s := range signals {
		if signal.Ignored(s) {
			mask |= 1 << (s - 1)
		}
	}
	return mask
}

// signals returns the signals that were ignored and blocked when this process started.
func signals() (ignored, blocked uint64) {
	if early.Signals {
		return early.Ignored, early.Blocked
	}
	return notEarly, 0
}
