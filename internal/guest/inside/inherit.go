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
	return strings.Join(words, " ")
}

// inherit gives this process the state of the job that it is about to become.
func inherit(text string) {
	for word := range strings.FieldsSeq(text) {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "limit":
			setLimit(value)
		case "umask":
			if mask, err := strconv.ParseUint(value, 8, 9); err == nil {
				syscall.Umask(int(mask))
			}
		}
	}
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
	const resources = 16 // numbered from 0
	for resource := range resources {
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
