// Package cputicks reads how much the CPUs of a machine have worked. It is a part of grange-guest, too.
package cputicks

import (
	"os"
	"strconv"
	"strings"
)

// ASecond is the unit of Busy, the same on all of Linux' architectures that VMs run on.
const ASecond = 100

// Busy is how long all CPUs together have worked since the boot, guests included; 0 where /proc does not say.
func Busy() int64 {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return busy(line)
}

// busy adds up what is not idle of the first line of proc(5)'s stat: the fields 4 and 5 are, and those of guests count
// in the first two already.
func busy(line string) (sum int64) {
	for i, word := range strings.Fields(line) {
		if n, err := strconv.ParseInt(word, 10, 64); err == nil && i != 4 && i != 5 && i <= 8 {
			sum += n
		}
	}
	return sum
}
