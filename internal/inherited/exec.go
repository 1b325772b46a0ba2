package inherited

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/inherited/early"
)

// Exec becomes another program, which gets the ignored and blocked signals and the closed standard files that this
// process was started with. The runtime of Go has changed them. Package syscall restores the limit of open files. Exec
// returns why it did not.
func Exec(path string, argv, env []string) error {
	runtime.LockOSThread() // blocked signals are a thread's
	defer runtime.UnlockOSThread()
	if early.Signals {
		SetSignals(early.Ignored, early.Blocked)
	}
	for n := range 3 {
		if early.Closed>>n&1 == 1 {
			unix.Close(n)
		}
	}
	return syscall.Exec(path, argv, env)
}

// SetSignals has this process ignore a set of signals and no others, and this thread block a set.
func SetSignals(ignored, blocked uint64) {
	for s := range uintptr(64) {
		IgnoreSignal(s+1, ignored>>s&1 == 1)
	}
	unix.PthreadSigmask(unix.SIG_SETMASK, sigset(blocked), nil)
}

// IgnoreSignal ignores a signal, or has it do what the kernel does by default. Package signal cannot do so with each of
// them.
func IgnoreSignal(s uintptr, ignore bool) {
	const setSize = 8     // of a set of signals, in bytes
	var action [4]uintptr // a struct sigaction of the kernel, without flags: SIG_DFL
	if ignore {
		action[0] = 1 // SIG_IGN
	}
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, s, uintptr(unsafe.Pointer(&action)), 0, setSize, 0, 0)
}

func sigset(set uint64) *unix.Sigset_t {
	s := new(unix.Sigset_t)
	const bits = int(8 * unsafe.Sizeof(s.Val[0]))
	for i := 0; i < 64; i += bits {
		setWord(&s.Val[i/bits], set>>i)
	}
	return s
}

// setWord sets a word of a set of signals, which is as wide as the machine's.
func setWord[T uint32 | uint64](word *T, set uint64) { *word = T(set) }
