package inherited

import (
	"os"

	"golang.org/x/sys/unix"
)

// OneFile reports whether what is written to both files arrives in the order in which it is written: they are one open
// file, one pipe or terminal, or one file to which both append. A regular file that is opened twice without O_APPEND
// has two positions.
func OneFile(a, b *os.File) bool {
	if a == nil || b == nil {
		return false
	}
	one, errOne := a.Stat()
	other, errOther := b.Stat()
	switch {
	case errOne != nil || errOther != nil || !os.SameFile(one, other):
		return false
	case !one.Mode().IsRegular():
		return true
	}
	return oneOpenFile(a, b) || appends(a) && appends(b)
}

// oneOpenFile asks by kcmp(2). It reports false where the kernel does not have it.
func oneOpenFile(a, b *os.File) bool {
	const file = 0 // KCMP_FILE
	pid := uintptr(os.Getpid())
	different, _, err := unix.Syscall6(unix.SYS_KCMP, pid, pid, file, a.Fd(), b.Fd(), 0)
	return err == 0 && different == 0
}

func appends(f *os.File) bool {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_APPEND != 0
}
