package libvirt

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// Confinement is what stands between a guest that breaks out of its QEMU and the host, as libvirt and the kernel have
// it.
type Confinement struct {
	UID, GID int
	Models   []string // security drivers that keep VMs from each other: "apparmor", "selinux"
	// why libvirt makes VMs' AppArmor profiles; "": grange does, or libvirt does not confine by AppArmor
	Profile  string
	Shared   string // why VMs cannot run as users of their own; "": they can
	VMs      int    // of ours that run,
	Own      int    // how many of them run as a user of their own,
	Filtered int    // how many have a filter of system calls,
	Enforced int    // and how many have an AppArmor profile that is enforced
}

// Confinement reads it. QEMU as root is an error.
func (l *Libvirt) Confinement(ctx context.Context) (Confinement, error) {
	s, err := l.daemon.ready(ctx)
	if err != nil {
		return Confinement{}, err
	}
	if s.owner[0] == 0 {
		return Confinement{}, rootQEMU()
	}
	c := Confinement{UID: s.owner[0], GID: s.owner[1], Models: s.host.models, Profile: s.host.noProfile}
	kvm := l.cfg.Accelerator != TCG && s.host.kvm
	if _, c.Shared, err = ownGroup(libDir(l.cfg.Socket), c.GID, kvm, 0, 0); err != nil {
		return c, err
	}
	noted, err := l.journal.all()
	if err != nil {
		return c, err
	}
	for _, e := range noted {
		p, err := l.machines.find(e.ID)
		if err != nil || p == nil {
			continue
		}
		c.VMs++
		if e.UID != c.UID {
			c.Own++
		}
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid)); err == nil &&
			strings.Contains(string(text), "\nSeccomp:\t2\n") {
			c.Filtered++
		}
		if _, enforced := securityLabel(p.pid); enforced {
			c.Enforced++
		}
	}
	return c, nil
}
