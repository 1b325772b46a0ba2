package topology

import (
	"strconv"

	"github.com/grange-project/grange/internal/hosttree"
)

// maxKiB is 64 PiB: more than the 52 bits of an x86 physical address.
const maxKiB = 1 << 46

type reader struct{ *hosttree.Files }

func cpuPath(cpu int, name string) string {
	path := cpuDir + "/cpu" + digits(cpu)
	if name != "" {
		path += "/" + name
	}
	return path
}

func digits(n int) string { return strconv.Itoa(n) }
