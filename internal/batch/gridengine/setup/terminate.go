package setup

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Suspend has the wrapper of a job, and it alone, pause its VM.
func Suspend(pid int) error { return tell(pid, unix.SIGTSTP) }

// Resume lets a suspended job go on.
func Resume(pid int) error { return tell(pid, unix.SIGCONT) }

func tell(pid int, s unix.Signal) error {
	if pid <= 1 {
		return fmt.Errorf("process %d is not a job", pid)
	}
	if err := unix.Kill(pid, s); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("%v to process %d: %w", s, pid, err)
	}
	return nil
}

// Terminate ends a job as its terminate method: TERM to the process that Grid Engine started, time to clean up, then
// KILL to all of its group. It runs as the job's user. A job that is stopped is continued, or it could not act upon the
// signal.
func Terminate(pid int, grace time.Duration) error {
	if pid <= 1 {
		return fmt.Errorf("process %d is not a job", pid)
	}
	watch, err := unix.PidfdOpen(pid, 0) // the number may be another's by the time we kill
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	defer unix.Close(watch)
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGCONT} {
		if err := unix.PidfdSendSignal(watch, s, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("%v to process %d: %w", s, pid, err)
		}
	}
	for deadline := time.Now().Add(grace); ; {
		left := max(0, time.Until(deadline))
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(watch), Events: unix.POLLIN}},
			int((left + time.Millisecond - 1).Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("wait for process %d: %w", pid, err)
		case n > 0:
			return nil // Grid Engine itself kills what it left behind
		}
		break
	}
	// it leads its group, and still is there
	if err := unix.Kill(-pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill the group of process %d: %w", pid, err)
	}
	return nil
}
