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

	"github.com/grange-project/grange/internal/guest"
)

// carried are the limits that a job takes with it, as /proc has their names. What the kernel has beside them is of no
// use in a VM: there is no other user whom a job could starve of locks, signals, queues or priority.
var carried = map[string]int{
	"Max cpu time": unix.RLIMIT_CPU, "Max file size": unix.RLIMIT_FSIZE, "Max data size": unix.RLIMIT_DATA,
	"Max stack size": unix.RLIMIT_STACK, "Max core file size": unix.RLIMIT_CORE, "Max processes": unix.RLIMIT_NPROC,
	"Max open files": unix.RLIMIT_NOFILE, "Max locked memory": unix.RLIMIT_MEMLOCK,
	"Max address space": unix.RLIMIT_AS,
}

// Of are the limits of a process, of the host whose files are in root. Without coreFiles a job leaves no core files,
// whatever its caller may. A process that has ended, or is of another PID namespace, has no others.
func Of(root fs.FS, pid int, coreFiles bool) []guest.Limit {
	text, _ := fs.ReadFile(root, fmt.Sprintf("proc/%d/limits", pid))
	limits := parse(string(text))
	if coreFiles {
		return limits
	}
	limits = slices.DeleteFunc(limits, func(l guest.Limit) bool { return l.Resource == unix.RLIMIT_CORE })
	return append(limits, guest.Limit{Resource: unix.RLIMIT_CORE})
}

// parse reads /proc/PID/limits. What cannot be read is left out.
func parse(text string) (limits []guest.Limit) {
	for line := range strings.Lines(text) {
		const width = 26 // of the name
		if len(line) < width {
			continue
		}
		resource, ok := carried[strings.TrimSpace(line[:width])]
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
