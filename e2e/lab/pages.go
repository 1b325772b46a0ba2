package lab

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// pagesLock is held by whoever changes the host's memory settings. /run is the host's own, and empty after a boot.
const pagesLock = "/run/grange-test-memory.lock"

// HoldMemory keeps tests apart that change huge pages, KSM or transparent huge pages of the host: `go test` runs
// packages at the same time. It waits for the others, and a kill releases it.
func HoldMemory() (release func(), err error) {
	f, err := os.OpenFile(pagesLock, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", pagesLock, err)
	}
	return func() { f.Close() }, nil
}
