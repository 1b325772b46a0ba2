package cli

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
)

// exitNever: no VM was started, the job did not run, and a batch system should not try again.
const exitNever = 197

// requeue is how a wrapper has its batch system put the job back into the queue.
type requeue struct {
	status int // to end with
	// tried is how often the job was in the queue again before, where it can be told; else the batch system itself
	// counts. What it reads is the user's, who harms nobody but their own job by writing something else there.
	tried func(getenv func(string) string, read func(string) ([]byte, error)) int
	// hold: exitNever has the batch system hold the job, so that no job may end with it by itself.
	hold bool
}

// requeues are the means of each batch system. docs/guide/exec.md has the same table with what to configure there.
var requeues = map[farm.BatchSystem]requeue{
	// RequeueExit=199 in slurm.conf.
	farm.Slurm: {status: exitNotStarted, tried: func(getenv func(string) string, _ func(string) ([]byte, error)) int {
		return atoi(getenv("SLURM_RESTART_COUNT"))
	}},
	// sge_shepherd takes 99 for "again" by itself. RESTARTED is 0 at first and not 0 ever after: one more time is all
	// that can be told apart.
	farm.GridEngine: {status: 99, tried: func(getenv func(string) string, _ func(string) ([]byte, error)) int {
		if atoi(getenv("RESTARTED")) != 0 {
			return countless
		}
		return 0
	}},
	// The access point's job transform keeps a job with 199 in the queue, and holds one with 197. A file named by
	// _CONDOR_WRAPPER_ERROR_FILE would need no transform, but HTCondor 23.9 looks at it no more. The schedd counts in
	// the job's ad, from 1 at the first start.
	farm.HTCondor: {status: exitNotStarted, hold: true,
		tried: func(getenv func(string) string, read func(string) ([]byte, error)) int {
			ad, err := read(getenv("_CONDOR_JOB_AD"))
			if err != nil {
				return 0
			}
			for line := range strings.Lines(string(ad)) {
				if key, value, ok := strings.Cut(line, "="); ok &&
					strings.EqualFold(strings.TrimSpace(key), "NumShadowStarts") {
					return max(atoi(strings.TrimSpace(value))-1, 0)
				}
			}
			return 0
		}},
	// the epilogue hook sees it and reruns the job; PBS itself holds a job after some 20 runs
	farm.PBS: {status: exitNotStarted},
	farm.LSF: {status: exitNotStarted}, // REQUEUE_EXIT_VALUES=199 and MAX_JOB_REQUEUE of the queue
}

// countless stands for "again, and nobody knows how often".
const countless = 1 << 30

func atoi(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// ending is how the wrapper itself ends.
type ending struct {
	status int
	signal syscall.Signal // to die of, when not 0
	say    error          // to print, on top of what was printed
}

// end tells the batch system what became of its job.
func (b *batchJob) end(o outcome, getenv func(string) string, read func(string) ([]byte, error)) ending {
	again := requeues[b.system]
	switch {
	case o.exit != nil && o.exit.Signal != 0:
		return ending{status: o.status, signal: syscall.Signal(o.exit.Signal)}
	case o.exit != nil && (o.status == exitNotStarted && again.status == exitNotStarted || o.status == exitNever &&
		again.hold):
		return ending{status: exitVMLost,
			say: &farm.Error{Kind: farm.Conflict, Code: farm.CodeStatusTaken,
				Message: fmt.Sprintf("the job ended with status %d, which its batch system takes for the wrapper's; it "+
					"is reported as %d", o.status, exitVMLost),
				Hint: fmt.Sprintf("let the job end with another status than %d", o.status)}}
	case o.exit != nil:
		return ending{status: o.status}
	case errors.As(o.err, new(signalled)):
		var s signalled
		errors.As(o.err, &s)
		return ending{status: o.status, signal: s.Signal}
	case o.status == exitVMLost:
		return ending{status: exitVMLost}
	case o.status != exitNotStarted || isDenial(o.err): // a request that makes no sense now will make none later
		return ending{status: exitNever}
	case again.tried != nil && again.tried(getenv, read) >= b.requeues:
		return ending{status: exitNever,
			say: &farm.Error{Kind: farm.Unavailable, Code: farm.CodeGivenUp,
				Message: "the job was queued again as often as it may be, and again its VM was not started",
				Hint: "mend what is said above, and submit the job again; `requeues` in the agent's configuration is " +
					"the " +
					"bound"}}
	}
	return ending{status: again.status}
}

// isDenial tells what will not be otherwise on another host or at another time: what the site does not allow, and a
// directory that no VM of the image has.
func isDenial(err error) bool {
	code := codeOf(err)
	return code == string(farm.CodePolicy) || code == string(farm.CodeNoDirectory)
}

// deathError carries the signal that the process is to die of through cobra.
type deathError struct{ signal syscall.Signal }

func (e deathError) Error() string { return "death by " + e.signal.String() }

// die ends the process by the signal, as the job ended in its VM: batch systems tell that from any exit status. Go's
// runtime has handlers of its own, which os/signal.Reset leaves in place; so the kernel's default action is set by
// hand. There is no core file: it would be of this program. Where the signal does not kill, as for process 1 of a PID
// namespace, it returns the status that shells use.
func die(s syscall.Signal) int {
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
