package inherited

import (
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

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

// Exec becomes another program, which blocks no signal that this one's caller did not block. It returns why it did not.
func Exec(path string, args, environ []string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if held := uint64(1 << (unix.SIGTSTP - 1)); early.Signals && early.Blocked&held == 0 {
		unix.PthreadSigmask(unix.SIG_UNBLOCK, &unix.Sigset_t{Val: [16]uint64{held}}, nil)
	}
	return syscall.Exec(path, args, environ)
}
