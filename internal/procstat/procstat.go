// Package procstat reads what the kernel says of processes, as /proc/PID/stat: see proc(5).
package procstat

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The numbers of fields, as the manual has them.
const (
	state   = 3
	parent  = 4
	user    = 14
	system  = 15
	started = 22
)

// Stat is what the kernel says of a process.
type Stat struct{ behind []string } // the name, from field 3 on

// Parse reads the text of the file. The name, in brackets, may hold blanks and brackets; what follows the last one is
// plain.
func Parse(text []byte) Stat {
	return Stat{strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))}
}

// Field is one behind the name, by its number; "": there is none.
func (s Stat) Field(number int) string {
	if i := number - state; i >= 0 && i < len(s.behind) {
		return s.behind[i]
	}
	return ""
}

// Started is when the process started, in clock ticks since boot: its number and this are of one process for ever.
func (s Stat) Started() (uint64, error) {
	text := s.Field(started)
	if text == "" {
		return 0, errors.New("stat is cut short")
	}
	return strconv.ParseUint(text, 10, 64)
}

// Parent is the process that a process of this host is a child of; 0: it is not there, or its parent is not seen.
func Parent(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	number, _ := strconv.Atoi(Parse(text).Field(parent))
	return number
}

// Started is when a process of this host started. A zombie counts as gone.
func Started(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return startOf(text)
}

// StartedAt returns when the process of a directory below /proc started. The directory stays that of this process: when
// the process has gone, the kernel refuses to read there, also when another one has its number.
func StartedAt(directory *os.File) (uint64, error) {
	fd, err := unix.Openat(int(directory.Fd()), "stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	text := make([]byte, 4096) // of which the kernel fills a few hundred
	n, err := unix.Read(fd, text)
	if err != nil {
		return 0, err
	}
	return startOf(text[:n])
}

func startOf(text []byte) (uint64, error) {
	s := Parse(text)
	if is := s.Field(state); is == "Z" || is == "X" {
		return 0, os.ErrNotExist
	}
	return s.Started()
}

// Tick is that of the kernel's clock for CPU time and starts, which is the same on every architecture that we know.
const Tick = 10 * time.Millisecond

// CPUTime is what a process of this host has used, with all its threads.
func CPUTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	s := Parse(text)
	inUser, err := strconv.ParseUint(s.Field(user), 10, 64)
	if err != nil {
		return 0, err
	}
	inSystem, err := strconv.ParseUint(s.Field(system), 10, 64)
	return time.Duration(inUser+inSystem) * Tick, err
}

// Age is how long a process has been there, by a clock that nobody sets.
func Age(pid int) (time.Duration, error) {
	started, err := Started(pid)
	if err != nil {
		return 0, err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, err
	}
	return max(0, time.Duration(now.Nano())-time.Duration(started)*Tick), nil
}

// Resident is the memory that this process has, in bytes; 0: the kernel does not tell.
func Resident() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseUint(fields[1], 10, 64)
	return pages * uint64(os.Getpagesize())
}

// RunsAs reports whether a process has a user. A connection outlives the process that made it, where another one holds
// it too; the number may then be a stranger's by now, with a larger job.
func RunsAs(files fs.FS, pid int, uid uint32) bool {
	text, err := fs.ReadFile(files, fmt.Sprintf("proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok { // real, effective, saved, of files
			return slices.Contains(strings.Fields(ids), strconv.FormatUint(uint64(uid), 10))
		}
	}
	return false
}
