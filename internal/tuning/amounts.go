package tuning

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// roughly is an amount for people: "28.4 GiB".
func roughly(b farm.Bytes) string {
	switch {
	case b >= farm.GiB:
		return strconv.FormatFloat(float64(b)/float64(farm.GiB), 'f', 1, 64) + " GiB"
	case b >= farm.MiB:
		return fmt.Sprintf("%d MiB", b/farm.MiB)
	}
	return fmt.Sprintf("%d KiB", b/farm.KiB)
}

// pageName is a page size as administrators call it: "2 MiB", "1 GiB".
func pageName(size farm.Bytes) string {
	for _, u := range []struct {
		unit farm.Bytes
		name string
	}{{farm.GiB, "GiB"}, {farm.MiB, "MiB"}, {farm.KiB, "KiB"}} {
		if size >= u.unit {
			return fmt.Sprintf("%d %s", size/u.unit, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", size)
}

// versionOf reads the first two numbers of a version such as "3.10.0-229.el7.x86_64"; ok is false where it does not
// begin so.
func versionOf(s string) (major, minor int, ok bool) {
	first, rest, _ := strings.Cut(s, ".")
	end := 0
	for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
		end++
	}
	major, err := strconv.Atoi(first)
	minor, err2 := strconv.Atoi(rest[:end])
	return major, minor, err == nil && err2 == nil
}

// since reports whether a version is known and not before major.minor.
func since(version string, major, minor int) bool {
	a, b, ok := versionOf(version)
	return ok && (a > major || a == major && b >= minor)
}

// before reports whether a version is known and before major.minor.
func before(version string, major, minor int) bool {
	_, _, ok := versionOf(version)
	return ok && !since(version, major, minor)
}

// cpusInWords is "CPU 6", or "CPUs 0-3,8".
func cpusInWords(cpus farm.CPUSet) string {
	if cpus.Len() == 1 {
		return "CPU " + cpus.String()
	}
	return "CPUs " + cpus.String()
}
