package hostfacts

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hosttree"
	"github.com/grange-project/grange/internal/lazyregexp"
)

var macAddress = lazyregexp.New(`\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b`)

// anonymize gives the host, its VMs and their disks made-up names, in paths and in contents. The same name always
// becomes the same one, so that what belongs together still does.
func anonymize(entries []hosttree.Recorded, h farm.HostFacts) []hosttree.Recorded {
	names := aliases(h)
	out := slices.Clone(entries)
	for i, e := range out {
		named := strings.Contains(e.Path, "libvirt/qemu/") || strings.HasPrefix(e.Path, "proc/") ||
			strings.HasPrefix(e.Path, "sys/fs/cgroup/")
		for _, a := range names {
			e.Path = a.replace(e.Path)
			if named || a.long {
				e.Data = []byte(a.replace(string(e.Data)))
			}
		}
		if strings.Contains(e.Path, "libvirt/qemu/") {
			e.Data = macAddress.ReplaceAll(e.Data, []byte("52:54:00:00:00:00"))
		}
		if e.Path == "etc/hostname" || e.Path == "proc/sys/kernel/hostname" {
			e.Data = []byte("host\n")
		}
		out[i] = e
	}
	slices.SortStableFunc(out, func(a, b hosttree.Recorded) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// alias is a name and what stands for it.
type alias struct {
	name *regexp.Regexp
	to   string
	long bool // so long that it can mean nothing else, anywhere
}

// replace changes the name where it stands for itself, and not within a longer word.
func (a alias) replace(text string) string {
	for range 2 { // one match takes the blank that the next would begin with
		text = a.name.ReplaceAllString(text, "${1}"+a.to+"${2}")
	}
	return text
}

// aliases are of the longest names first: one may be a part of another.
func aliases(h farm.HostFacts) []alias {
	to := map[string]string{}
	give := func(name, alias string) {
		if _, ok := to[name]; name != "" && !ok {
			to[name] = alias
		}
	}
	give(h.Name, "host")
	for i, d := range h.Domains {
		give(d.Name, fmt.Sprintf("vm%d", i+1))
		give(d.UUID, fmt.Sprintf("00000000-0000-4000-8000-%012d", i+1))
		for k, disk := range d.Disks {
			give(strings.TrimPrefix(disk.Path, "/"), fmt.Sprintf("disks/vm%d-%d", i+1, k+1))
		}
	}
	names := make([]string, 0, len(to))
	for name := range to {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	const short = 6 // letters; shorter names may be words
	out := make([]alias, 0, len(names))
	for _, name := range names {
		out = append(out, alias{regexp.MustCompile(`(^|[^A-Za-z0-9])` + regexp.QuoteMeta(name) + `($|[^A-Za-z0-9])`),
			to[name], len(name) >= short})
	}
	return out
}
