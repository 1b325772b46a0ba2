package runner

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/procstat"
)

// stopSignal is SIGTSTP, which all threads of this process block: see package early. It is never taken. It stays
// pending until a CONT comes, which has the kernel discard it, or until act. So it is pending exactly if it came after
// the last CONT. A handler could not know: it runs later than the signal was sent, and a process that stops itself
// discards a CONT that was sent just before.
type stopSignal struct {
	file *os.File       // a signalfd, of which nobody reads
	news chan os.Signal // one of the two came; which of them may be old news
}

var stopMask = unix.Sigset_t{Val: [16]uint64{1 << (unix.SIGTSTP - 1)}}

// newStopSignal returns nil where TSTP is not blocked. There its default action stops this process at once, and the
// agent pauses the VM when no heartbeats come.
func newStopSignal() *stopSignal {
	var blocked unix.Sigset_t
	unix.PthreadSigmask(unix.SIG_BLOCK, nil, &blocked)
	if blocked.Val[0]&stopMask.Val[0] == 0 {
		return nil
	}
	fd, err := unix.Signalfd(-1, &stopMask, unix.SFD_CLOEXEC|unix.SFD_NONBLOCK)
	if err != nil {
		return nil
	}
	return &stopSignal{os.NewFile(uintptr(fd), "signalfd"), make(chan os.Signal, 1)}
}

// follow reports news until ctx ends.
func (s *stopSignal) follow(ctx context.Context) {
	signal.Notify(s.news, unix.SIGCONT)
	stop := context.AfterFunc(ctx, func() { s.file.Close() })
	defer stop()
	raw, err := s.file.SyscallConn()
	if err != nil {
		return
	}
	raw.Read(func(uintptr) bool { // is called again at each TSTP
		if s.pending() {
			select {
			case s.news <- unix.SIGTSTP:
			default:
			}
		}
		return false
	})
}

func (s *stopSignal) pending() bool {
	var set uint64
	syscall.RawSyscall(unix.SYS_RT_SIGPENDING, uintptr(unsafe.Pointer(&set)), unsafe.Sizeof(set), 0)
	return set&stopMask.Val[0] != 0
}

// until waits for the signal to be pending, or not to be, and reports whether ctx lasted as long.
func (s *stopSignal) until(ctx context.Context, pending bool) bool {
	for s.pending() != pending {
		select {
		case <-s.news:
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

// act lets the kernel do what the signal does, if it is still pending, and returns when this process goes on.
func (s *stopSignal) act() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unix.PthreadSigmask(unix.SIG_UNBLOCK, &stopMask, nil) // it is delivered before this returns
	unix.PthreadSigmask(unix.SIG_BLOCK, &stopMask, nil)
}

// orphaned reports whether TSTP stops nothing in our process group: it has no process with a parent in another group of
// its session, such as a shell, that could continue it. It looks at those above us.
func orphaned() bool {
	group, session := unix.Getpgrp(), getsid(0)
	for pid := unix.Getppid(); pid > 0; pid = procstat.Parent(pid) {
		if getsid(pid) != session {
			return true
		}
		if of, err := unix.Getpgid(pid); err != nil || of != group {
			return err != nil
		}
	}
	return true
}

// getsid returns 0 for a process that is not there.
func getsid(pid int) int {
	session, err := unix.Getsid(pid)
	if err != nil {
		return 0
	}
	return session
}
