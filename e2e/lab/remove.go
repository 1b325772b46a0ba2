package lab

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// RemoveAll removes a directory of processes that were killed a moment ago: one of them may still make a file in it.
func RemoveAll(dir string) error {
	const timeout = 10 * time.Second
	for deadline := time.Now().Add(timeout); ; time.Sleep(50 * time.Millisecond) {
		err := os.RemoveAll(dir)
		late := errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EBUSY)
		if !late || time.Now().After(deadline) {
			return err
		}
	}
}
