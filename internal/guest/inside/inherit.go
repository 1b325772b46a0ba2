package inside

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/inherited"
)

// processText writes the state for Trampoline, which reads it without encoding/json: that takes too long there.
func processText(p guest.Process) string {
	var words []string
	for _, l := range p.Limits {
		words = append(words, fmt.Sprintf("limit=%d:%d:%d", l.Resource, l.Soft, l.Hard))
	}
	if p.Umask != nil {
		words = append(words, fmt.Sprintf("umask=%o", *p.Umask))
	}
	words = append(words, fmt.Sprintf("signals=%x:%x", p.Ignored, p.Blocked))
	if p.Nice != 0 {
		words = append(words, fmt.Sprintf("nice=%d", p.Nice))
	}
	if p.Null != 0 || p.Closed != 0 {
		words = append(words, fmt.Sprintf("files=%x:%x", p.Null, p.Closed))
	}
	return strings.Join(words, " ")
}

// inherit gives this thread and its process the state of the job that it is about to become.
func inherit(text string) {
	for word := range strings.FieldsSeq(text) {
		if name, value, _ := strings.Cut(word, "="); name == "files" { // before limits, which may forbid to open any
			setFiles(value)
		}
	}
	for word := range strings.FieldsSeq(text) {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "limit":
			setLimit(value)
		case "umask":
			if mask, err := strconv.ParseUint(value, 8, 9); err == nil {
				syscall.Umask(int(mask))
			}
		case "nice":
			if nice, err := strconv.Atoi(value); err == nil {
				unix.Setpriority(unix.PRIO_PROCESS, 0, nice)
			}
		}
	}
}

// setFiles opens /dev/null as standard files, and closes others. Where there is no /dev/null, the file stays.
func setFiles(text string) {
	var null, closed uint8
	if n, _ := fmt.Sscanf(text, "%x:%x", &null, &closed); n != 2 {
		return
	}
	openNull(null&1, unix.O_RDONLY)
	openNull(null&^1, unix.O_WRONLY)
	for n := range 3 {
		if closed>>n&1 == 1 {
			unix.Close(n)
		}
	}
}

// openNull opens /dev/null once for all files of a set.
func openNull(files uint8, flags int) {
	fd, err := unix.Open(os.DevNull, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	for n := range 3 {
		if files>>n&1 == 1 {
			unix.Dup3(fd, n, 0)
		}
	}
	unix.Close(fd)
}

// inheritSignals has this thread, which is about to become the job, ignore and block the job's signals. It returns
// those that it blocked.
func inheritSignals(text string) (blocked uint64) {
	for word := range strings.FieldsSeq(text) {
		var ignored uint64
		if n, _ := fmt.Sscanf(word, "signals=%x:%x", &ignored, &blocked); n == 2 {
			inherited.SetSignals(ignored, blocked)
		}
	}
	return blocked
}

// setLimit sets one limit. Where it is above the VM's own hard limit, it sets that.
func setLimit(text string) {
	var resource int
	var want, has syscall.Rlimit
	if _, err := fmt.Sscanf(text, "%d:%d:%d", &resource, &want.Cur, &want.Max); err != nil {
		return
	}
	if syscall.Getrlimit(resource, &has) == nil {
		want.Max = min(want.Max, has.Max)
	}
	want.Cur = min(want.Cur, want.Max)
	syscall.Setrlimit(resource, &want)
}

// openLimits raises the hard limits of grange-guest as far as the kernel allows. A job sets its own limits after it has
// become its user, who cannot exceed these.
func openLimits() {
	for resource := range guest.Resources {
		most := uint64(math.MaxUint64)
		if resource == unix.RLIMIT_NOFILE {
			most = mostOpenFiles("/proc/sys/fs/nr_open")
		}
		var l unix.Rlimit
		if unix.Prlimit(0, resource, nil, &l) == nil && l.Max < most {
			l.Max = most
			unix.Prlimit(0, resource, &l, nil)
		}
	}
}

// mostOpenFiles raises the kernel's bound of the limit of open files as far as it can be, and returns it.
func mostOpenFiles(bound string) uint64 {
	for _, most := range []uint64{1<<31 - 64, 1<<30 - 64} { // the most of kernels of 64 and of 32 bits
		if os.WriteFile(bound, []byte(strconv.FormatUint(most, 10)), 0) == nil {
			return most
		}
	}
	return 1 << 20 // the default of every kernel
}
