package inside

import (
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/guest"
)

// limitsText is how limits go to Trampoline.
func limitsText(limits []guest.Limit) string {
	words := make([]string, len(limits))
	for i, l := range limits {
		words[i] = fmt.Sprintf("%d:%d:%d", l.Resource, l.Soft, l.Hard)
	}
	return strings.Join(words, ",")
}

// setLimits gives this process the limits of its job, which it is about to become. What a process without rights cannot
// have is as near as the VM lets it: more than the VM's own hard limit nobody has there.
func setLimits(text string) {
	if text == "" {
		return
	}
	for word := range strings.SplitSeq(text, ",") {
		var resource int
		var want, has syscall.Rlimit
		if _, err := fmt.Sscanf(word, "%d:%d:%d", &resource, &want.Cur, &want.Max); err != nil {
			continue
		}
		if syscall.Getrlimit(resource, &has) == nil {
			want.Max = min(want.Max, has.Max)
		}
		want.Cur = min(want.Cur, want.Max)
		syscall.Setrlimit(resource, &want)
	}
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
