package inside

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// onOwnMounts runs f on a thread that sees its own copy of the mounts: what f mounts is seen by f and by the processes
// it starts, and goes with the last of them. Mounts that others make later arrive there too.
func onOwnMounts(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with us
		if unix.Gettid() == unix.Getpid() {
			// Not on the first thread: it is what /proc shows of us, and does not end. While we hold it, another one
			// takes the call.
			defer runtime.UnlockOSThread()
			done <- onOwnMounts(f)
			return
		}
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			done <- fmt.Errorf("mount namespace: %w", err)
			return
		}
		if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
			done <- fmt.Errorf("mount namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}
