package disk

import (
	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
)

// SetQuota bounds what Space gives away of the pool's file system; 0 does not.
func (p *Pool) SetQuota(q farm.Bytes) { p.quota = q }

// SameFileSystem reports whether two pools take their space from one file system.
func (p *Pool) SameFileSystem(other *Pool) bool {
	var a, b unix.Stat_t
	return unix.Stat(p.dir, &a) == nil && unix.Stat(other.dir, &b) == nil && a.Dev == b.Dev
}

// Owed is what the disks of VMs may still take beside what they have; promised as for Space.
func (p *Pool) Owed(promised map[string]farm.Bytes) (owed farm.Bytes) {
	vms, err := p.List()
	if err != nil {
		return 0
	}
	used := map[string]farm.Bytes{}
	for _, vm := range vms {
		has, more := p.usageOf(vm)
		if name := nameOf(vm, promised); name != "" {
			used[name] += has
		} else {
			owed += more
		}
	}
	for name, size := range promised {
		owed += size - min(size, used[name])
	}
	return owed
}
