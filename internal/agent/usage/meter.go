package usage

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/procstat"
)

// meter reads what one process has used. The kernel's clock of a process counts all of its threads, those that have
// ended too, to the nanosecond, but goes with the process: what a VM uses between the last look and a death that nobody
// announced would be lost. So the threads that are there at the first look have a counter of perf each, which counts
// the threads that they start as well, stays readable behind the end of all, and says what came since a look. Where the
// kernel gives none, the last look counts.
type meter struct {
	pid      int
	started  uint64
	clock    time.Duration // of the process at the last look
	counters []counter     // nil: there was no look yet
	end      int           // a descriptor that can be read when all threads have ended; -1: none
}

type counter struct {
	fd   int
	seen uint64 // nanoseconds at the last look
}

func newMeter(pid int, started uint64) *meter {
	m := &meter{pid: pid, started: started, end: -1}
	if end, err := unix.PidfdOpen(pid, 0); err == nil {
		m.end = end
	}
	if !m.alive() { // what was opened may be a later process's
		m.forgetEnd()
	}
	return m
}

func (m *meter) forgetEnd() {
	if m.end >= 0 {
		unix.Close(m.end)
	}
	m.end = -1
}

// endLimit is for the threads of a process that has died to end: with them goes its memory, which takes CPU time of its
// own.
const endLimit = 2 * time.Second

// awaitEnd returns when all threads have ended.
func (m *meter) awaitEnd() {
	for until := time.Now().Add(endLimit); m.end >= 0 && time.Now().Before(until); {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(m.end), Events: unix.POLLIN}}, int(endLimit.Milliseconds()))
		if n > 0 || err != unix.EINTR {
			return
		}
	}
}

// alive reports whether the very process is there.
func (m *meter) alive() bool {
	started, err := procstat.Started(m.pid)
	return err == nil && started == m.started
}

// look reads all, and reports whether the process is there.
func (m *meter) look() bool {
	clock, err := processClock(m.pid)
	if err != nil || !m.alive() { // looked at last: the clock may be of a later process
		return false
	}
	m.clock = clock
	if m.counters == nil {
		m.follow()
	}
	for i := range m.counters {
		m.counters[i].seen, _ = m.counters[i].read()
	}
	return true
}

// used is the CPU time of the process, also when it has ended.
func (m *meter) used() time.Duration {
	if m.look() {
		return m.clock
	}
	m.awaitEnd()
	used := m.clock
	for _, c := range m.counters {
		if now, err := c.read(); err == nil && now > c.seen {
			used += time.Duration(now - c.seen)
		}
	}
	return used
}

// follow has a counter for each thread that is there.
func (m *meter) follow() {
	m.counters = []counter{}
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", m.pid))
	if err != nil {
		return
	}
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if fd, err := taskClock(id); err == nil {
			m.counters = append(m.counters, counter{fd: fd})
		}
	}
}

func (c counter) read() (uint64, error) {
	var b [8]byte
	if n, err := unix.Read(c.fd, b[:]); err != nil || n != len(b) {
		return c.seen, fmt.Errorf("perf counter: %d bytes: %w", n, err)
	}
	return binary.NativeEndian.Uint64(b[:]), nil
}

func (m *meter) close() {
	m.forgetEnd()
	for _, c := range m.counters {
		unix.Close(c.fd)
	}
	m.counters = []counter{}
}

// taskClock counts how long a thread runs from now on, and those that it starts.
func taskClock(thread int) (fd int, err error) {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK}
	attr.Size = uint32(unsafe.Sizeof(attr))
	const threadsOnly = unix.CBitFieldMaskBit35 // inherit_thread: not processes that it forks; Linux 5.13 and later
	attr.Bits = unix.PerfBitInherit | threadsOnly
	if fd, err = unix.PerfEventOpen(&attr, thread, -1, -1, unix.PERF_FLAG_FD_CLOEXEC); err == nil {
		return fd, nil
	}
	attr.Bits = unix.PerfBitInherit
	return unix.PerfEventOpen(&attr, thread, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
}

// processClock is the CPU time of a process and of all its threads, dead ones included: see clock_getcpuclockid(3).
func processClock(pid int) (time.Duration, error) {
	if pid <= 0 {
		return 0, os.ErrProcessDone
	}
	const scheduled = 2 // of the clock's number, as the kernel's posix-timers have it: what the scheduler counts
	var now unix.Timespec
	err := unix.ClockGettime(int32(^pid<<3|scheduled), &now)
	return time.Duration(now.Nano()), err
}

// sinceBoot is a clock that nobody sets and that goes on while the host sleeps.
func sinceBoot() time.Duration {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
	return time.Duration(now.Nano())
}

// peakMemory is the most of a process that was resident, in bytes; 0 where the kernel does not say.
func peakMemory(pid int) uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			if fields := strings.Fields(value); len(fields) == 2 {
				n, _ := strconv.ParseUint(fields[0], 10, 64)
				return n << 10
			}
		}
	}
	return 0
}
