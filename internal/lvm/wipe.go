package lvm

import (
	"context"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/sleep"
)

// Wipe is when the blocks of a thick volume are cleared, so that no VM reads what was there before it. A thin pool
// hands out zeros by itself.
type Wipe string

// Times.
const (
	WipeStart   Wipe = "start"   // when it is made: whatever was there before, of ours or not
	WipeEnd     Wipe = "end"     // before it is removed: starts are fast, and the group is ours alone
	WipeDiscard Wipe = "discard" // the same, by a discard alone: for devices that read zeros then
)

// Wipes are all of them.
var Wipes = []Wipe{WipeStart, WipeEnd, WipeDiscard}

// blkZeroOut has the kernel write zeros, by a command of the device where it has one.
const blkZeroOut = 0x127f

// wipeStep is cleared between two looks at whether it is still wanted.
const wipeStep = 256 * farm.MiB

// Clear writes zeros over a device, or discards it.
func Clear(ctx context.Context, path string, how Wipe) error {
	f, err := openAgain(ctx, path)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Seek(0, 2)
	if err != nil {
		return err
	}
	request := uintptr(blkZeroOut)
	if how == WipeDiscard {
		request = unix.BLKDISCARD
	}
	for at := int64(0); at < size; at += int64(wipeStep) {
		if err := ctx.Err(); err != nil {
			return err
		}
		span := [2]uint64{uint64(at), uint64(min(int64(wipeStep), size-at))}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(&span)))
		if errno == unix.EOPNOTSUPP && how == WipeDiscard {
			return Clear(ctx, path, WipeEnd) // the device cannot
		}
		if errno != 0 {
			return fmt.Errorf("clear %s: %w", path, errno)
		}
	}
	return nil
}

// openAgain opens a device that udev may be looking at.
func openAgain(ctx context.Context, path string) (f *os.File, err error) {
	for range 50 {
		if f, err = os.OpenFile(path, os.O_RDWR|unix.O_EXCL, 0); err == nil {
			return f, nil
		}
		if err := sleep.For(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return nil, err
}
