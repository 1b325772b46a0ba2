package filesystems

import (
	"os"
	"slices"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/mounts"
)

// Mounted are the network file systems that this host has mounted, as the server is told: each once, with the VMs whose
// jobs use it, and the drains that the host keeps. Without the kernel's table they are left out.
func (d *Drains) Mounted(vms [][]Used) []farm.HostFileSystem {
	table, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer table.Close()
	all, err := mounts.Networked(table)
	if err != nil {
		return nil
	}
	return d.count(all, vms)
}

func (d *Drains) count(all []mounts.Mount, vms [][]Used) (out []farm.HostFileSystem) {
	drains := d.List()
	var seen []mounts.Mount
	for _, m := range all {
		if slices.ContainsFunc(seen, m.Same) || len(seen) == mostMounts {
			continue
		}
		seen = append(seen, m)
		f := farm.HostFileSystem{Source: m.Source, Type: m.Type, MountPoint: m.Point}
		for _, vm := range vms {
			if slices.ContainsFunc(vm, func(u Used) bool { return slices.ContainsFunc(u.Mounts, m.Same) }) {
				f.VMs++
			}
		}
		for _, o := range drains {
			if o.Fleet && match(o).Has(m) {
				f.Drains = append(f.Drains, o.Name)
			}
		}
		out = append(out, f)
	}
	return out
}
