// Package inherited reads the state that this process inherited from its caller, so that a command in a VM can have it.
package inherited

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/inherited/early"
)

// Process returns the state that this process was started in.
func Process() guest.Process {
	status, _ := os.ReadFile("/proc/self/status") // without /proc, the guest's defaults apply
	p := guest.Process{Umask: umask(string(status)), Limits: limits(), Nice: nice()}
	p.Ignored, p.Blocked = signals()
	return p
}

func limits() (all []guest.Limit) {
	for resource := range guest.Resources {
		var l syscall.Rlimit
		if syscall.Getrlimit(resource, &l) != nil {
			continue
		}
		if first := early.OpenFiles; resource == syscall.RLIMIT_NOFILE && first != nil {
			l.Cur = min(first.Soft, l.Max)
		}
		all = append(all, guest.Limit{Resource: resource, Soft: l.Cur, Hard: l.Max})
	}
	return all
}

// umask reads the umask in the text of /proc/PID/status. umask(2) cannot read it without a change of it, which other
// threads would see.
func umask(status string) *uint32 {
	for line := range strings.Lines(status) {
		var mask uint32
		if n, _ := fmt.Sscanf(line, "Umask:\t%o", &mask); n == 1 {
			return &mask
		}
	}
	return nil
}
