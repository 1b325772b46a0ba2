package filesystems

import (
	"os"
	"slices"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/mounts"
)

// Mounted are the network file systems that this host has mounted, as the server is told: each place once, with the VMs
// whose jobs use it, and those of the drains that concern it. Without the kernel's table they are left out.
func Mounted(drains []api.FileSystemDrain, vms [][]Used) []farm.HostFileSystem {
	table, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer table.Close()
	all, err := mounts.Networked(table)
	if err != nil {
		return nil
	}
	return count(all, drains, vms)
}

func count(all []mounts.Mount, drains []api.FileSystemDrain, vms [][]Used) (out []farm.HostFileSystem) {
	var seen []mounts.Mount
	for _, m := range all {
		again := func(o mounts.Mount) bool { return o.Same(m) && o.Point == m.Point }
		if slices.ContainsFunc(seen, again) || len(seen) == mostMounts {
			continue
		}
		seen = append(seen, m)
		f := farm.HostFileSystem{Source: m.Source, Type: m.Type, MountPoint: m.Point}
		for _, vm := range vms {
			if slices.ContainsFunc(vm, func(u Used) bool { return u.of(m) }) {
				f.VMs++
			}
		}
		for _, o := range drains {
			if o.Fleet && mounts.Match(o.Match).Has(m) {
				f.Drains = append(f.Drains, o.Name)
			}
		}
		out = append(out, f)
	}
	return out
}

// of reports whether a mount of the host may be among them: one that an automounter has made since, or anew, too.
func (u Used) of(m mounts.Mount) bool {
	return u.More || slices.ContainsFunc(u.Mounts, func(is mounts.Mount) bool {
		return is.Same(m) || is.Point == m.Point && is.Type == m.Type ||
			is.Type == "autofs" && mounts.Below(m.Point, is.Point)
	})
}
