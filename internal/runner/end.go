package runner

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
)

// ending is how the wrapper itself ends.
type ending struct {
	status int
	signal syscall.Signal // to die of, when not 0
	say    error          // to print, on top of what was printed
}

// end reports to the batch system what became of its job.
func (b *Batch) end(o outcome, getenv func(string) string, read func(string) ([]byte, error)) ending {
	w, s := b.Kind.Wrapper, signalled{}
	switch {
	case o.exit != nil && o.exit.Signal != 0:
		return ending{status: o.status, signal: syscall.Signal(o.exit.Signal)}
	case o.exit != nil && w.Takes(o.status):
		return ending{status: batch.ExitVMLost,
			say: &farm.Error{Kind: farm.Conflict, Code: CodeStatusTaken,
				Message: fmt.Sprintf("the job ended with status %d, which its batch system takes for the wrapper's; it "+
					"is reported as %d", o.status, batch.ExitVMLost),
				Hint: fmt.Sprintf("let the job end with another status than %d", o.status)}}
	case o.exit != nil:
		return ending{status: o.status}
	case errors.As(o.err, &s):
		return ending{status: o.status, signal: s.Signal}
	case o.status == batch.ExitVMLost:
		return ending{status: batch.ExitVMLost}
	case o.status != batch.ExitNotStarted || IsDenial(o.err): // a request that makes no sense now will make none later
		return ending{status: batch.ExitNever}
	case w.Tried != nil && w.Tried(getenv, read) >= b.Requeues:
		return ending{status: batch.ExitNever,
			say: &farm.Error{Kind: farm.Unavailable, Code: CodeGivenUp,
				Message: "the job was queued again as often as it may be, and again its VM was not started",
				Hint: "mend what is said above, and submit the job again; `requeues` in the agent's configuration is " +
					"the bound"}}
	}
	return ending{status: w.Requeue}
}

// IsDenial reports whether an error will be the same on another host or at another time: what the site does not allow,
// and a directory that no VM of the image has.
func IsDenial(err error) bool {
	code := codeOf(err)
	return code == farm.CodePolicy || code == farm.CodeNoDirectory
}

// codeOf is the code of the agent's error or our own; "" for what has none.
func codeOf(err error) farm.Code {
	problem, own := new(api.Problem), new(farm.Error)
	switch {
	case errors.As(err, &problem):
		return farm.Code(strings.TrimPrefix(problem.Type, "grange:"))
	case errors.As(err, &own):
		return own.Code
	}
	return ""
}

// usage is the error of a request that makes no sense.
func usage(hint, format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeUsage, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// Die ends the process by the signal, as the job ended in its VM: batch systems tell that from any exit status. Go's
// runtime has handlers of its own, which os/signal.Reset leaves in place; so the kernel's default action is set by
// hand. There is no core file: it would be of this program. Where the signal does not kill, as for process 1 of a PID
// namespace, it returns the status that shells use.
func Die(s syscall.Signal) int {
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	runtime.LockOSThread()
	var action, mask [8]uint64 // a zero struct sigaction: SIG_DFL; and a full size sigset_t
	const size = 8             // of the kernel's sigset_t
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&action)), 0, size, 0, 0)
	mask[0] = 1 << (uint(s) - 1)
	unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_UNBLOCK, uintptr(unsafe.Pointer(&mask)), 0, size, 0, 0)
	unix.Tgkill(unix.Getpid(), unix.Gettid(), s)
	return 128 + int(s)
}
