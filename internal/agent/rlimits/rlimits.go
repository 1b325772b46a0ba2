// Package rlimits reads the limits of a process on the host: of its resources, for a job to have them in its VM, and of
// its control groups' memory.
package rlimits

import (
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/guest"
)

// numbers are those of the limits, by their names in /proc.
var numbers = map[string]int{
	"Max cpu time": unix.RLIMIT_CPU, "Max file size": unix.RLIMIT_FSIZE, "Max data size": unix.RLIMIT_DATA,
	"Max stack size": unix.RLIMIT_STACK, "Max core file size": unix.RLIMIT_CORE,
	"Max resident set": unix.RLIMIT_RSS, "Max processes": unix.RLIMIT_NPROC, "Max open files": unix.RLIMIT_NOFILE,
	"Max locked memory": unix.RLIMIT_MEMLOCK, "Max address space": unix.RLIMIT_AS, "Max file locks": unix.RLIMIT_LOCKS,
	"Max pending signals": unix.RLIMIT_SIGPENDING, "Max msgqueue size": unix.RLIMIT_MSGQUEUE,
	"Max nice priority": unix.RLIMIT_NICE, "Max realtime priority": unix.RLIMIT_RTPRIO,
	"Max realtime timeout": unix.RLIMIT_RTTIME,
}

// Of returns the limits of a process, of the host whose files are in root. It returns none for a process that has
// ended, or is in another PID namespace.
func Of(root fs.FS, pid int) []guest.Limit {
	text, _ := fs.ReadFile(root, fmt.Sprintf("proc/%d/limits", pid))
	return parse(string(text))
}

// Within returns the limits with those that are asked for in their place, as far as the hard limits allow. A process
// asks because its own /proc/PID/limits is not always what it was started with.
func Within(limits []guest.Limit, asked []api.Limit) []guest.Limit {
	within := slices.Clone(limits)
	for _, l := range asked {
		i := slices.IndexFunc(within, func(has guest.Limit) bool { return has.Resource == l.Resource })
		if i < 0 {
			within = append(within, guest.Limit(l))
			continue
		}
		hard := min(l.Hard, within[i].Hard)
		within[i].Soft, within[i].Hard = min(l.Soft, hard), hard
	}
	return within
}

// parse reads /proc/PID/limits. What cannot be read is left out.
func parse(text string) (limits []guest.Limit) {
	for line := range strings.Lines(text) {
		const width = 26 // of the name
		if len(line) < width {
			continue
		}
		resource, ok := numbers[strings.TrimSpace(line[:width])]
		values := strings.Fields(line[width:])
		if !ok || len(values) < 2 {
			continue
		}
		soft, err1 := value(values[0])
		hard, err2 := value(values[1])
		if err1 == nil && err2 == nil {
			limits = append(limits, guest.Limit{Resource: resource, Soft: soft, Hard: hard})
		}
	}
	return limits
}

func value(text string) (uint64, error) {
	if text == "unlimited" {
		return math.MaxUint64, nil
	}
	return strconv.ParseUint(text, 10, 64)
}
