// Package pty makes pseudo-terminals: in VMs for jobs, and on hosts for sessions that outlive the terminal they were
// started from.
package pty

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Open makes a terminal: ours is what a terminal emulator has, child is what programs have.
func Open() (ours, child *os.File, err error) {
	ours, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	number, err := unlock(ours)
	if err == nil {
		child, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		ours.Close()
		return nil, nil, err
	}
	return ours, child, nil
}

func unlock(ours *os.File) (number int, err error) {
	raw, err := ours.SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if failed != nil {
		return 0, failed
	}
	return number, err
}

// Resize gives a terminal another size. The programs in its foreground get WINCH.
func Resize(ours *os.File, rows, cols uint16) error {
	raw, err := ours.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
	if failed != nil {
		return failed
	}
	return err
}
