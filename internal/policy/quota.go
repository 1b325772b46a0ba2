package policy

import (
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// CheckQuota refuses more beside what is used, where a limit that is not zero would be passed. Whose limit it is stands
// in the message: "project atlas". What asks for nothing of a thing is never refused for it, also where the limit was
// lowered below what is used: a VM without scratch can still be made.
func CheckQuota(whose string, limit, used, more farm.Quota) error {
	var over []string
	number := func(what string, limit, used, more int) {
		if limit > 0 && more > 0 && used+more > limit {
			over = append(over, fmt.Sprintf("%d of %d %s are in use, and %d more are asked for", used, limit,
				what, more))
		}
	}
	size := func(what string, limit, used, more farm.Bytes) {
		if limit > 0 && more > 0 && (used+more > limit || used+more < used) {
			over = append(over, fmt.Sprintf("%v of %v of %s are in use, and %v more are asked for", used, limit,
				what, more))
		}
	}
	number("VMs", limit.VMs, used.VMs, more.VMs)
	number("CPUs", limit.CPUs, used.CPUs, more.CPUs)
	size("memory", limit.Memory, used.Memory, more.Memory)
	size("scratch", limit.Scratch, used.Scratch, more.Scratch)
	if over == nil {
		return nil
	}
	return &farm.Error{Kind: farm.Denied, Code: farm.CodeQuota,
		Message: "the quota of " + whose + " has no room: " + strings.Join(over, "; "),
		Hint:    "ask for less, delete VMs that are not needed, or ask an administrator for a larger quota"}
}
