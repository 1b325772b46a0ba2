package inherited

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/inherited/early"
)

// Files returns which of the standard files, bit n for file n, are /dev/null and which were closed when this process
// started. A file that is not this process's own is never closed.
func Files(files ...*os.File) (null, closed uint8) {
	for n, f := range files {
		switch {
		case f == nil:
		case f.Fd() == uintptr(n) && early.Closed>>n&1 == 1:
			closed |= 1 << n
		case isNull(f):
			null |= 1 << n
		}
	}
	return null, closed
}

func isNull(f *os.File) bool {
	var s unix.Stat_t
	return unix.Fstat(int(f.Fd()), &s) == nil && s.Mode&unix.S_IFMT == unix.S_IFCHR &&
		uint64(s.Rdev) == unix.Mkdev(1, 3)
}

// nice is this process's nice value. The system call returns it such that it is never negative.
func nice() int {
	const zero = 20
	value, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return 0
	}
	return zero - value
}
