package inside

import (
	"fmt"
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

// openLimits raises the hard limits of grange-guest, which its jobs have at most, as far as the kernel lets it: those
// of a process 1 are small, and are no bound of the VM.
func openLimits() {
	for _, resource := range []int{unix.RLIMIT_MEMLOCK, unix.RLIMIT_NPROC, unix.RLIMIT_CORE} {
		var l syscall.Rlimit
		if syscall.Getrlimit(resource, &l) == nil {
			l.Max = unix.RLIM_INFINITY & (1<<64 - 1)
			syscall.Setrlimit(resource, &l)
		}
	}
	const files = 1 << 20 // fs.nr_open, which the kernel lets nobody pass
	var l unix.Rlimit
	if unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &l) == nil && l.Max < files {
		l.Max = files
		unix.Prlimit(0, unix.RLIMIT_NOFILE, &l, nil)
	}
}
