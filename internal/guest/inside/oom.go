package inside

import (
	"os"
	"strconv"
	"strings"
)

// oomKills is how many processes the VM's kernel has killed for want of memory; Linux counts them since 4.13.
func oomKills() int {
	text, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return 0
	}
	return oomKillsIn(string(text))
}

func oomKillsIn(vmstat string) int {
	for line := range strings.Lines(vmstat) {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(count))
			return n
		}
	}
	return 0
}
