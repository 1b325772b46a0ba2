package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// need is what a QEMU has to open, or to pass through, by the rights of its user and group: whoever has no account has
// no other groups.
type need struct {
	path string
	gid  uint32
	mode fs.FileMode
	want fs.FileMode // bits of others: 0o1 passes a directory, 0o6 reads and writes
	try  string
}

// OwnGroup returns the group with which a machine can run as a user of its own, who has no account; why says why there
// is none, and what to try. tracked is the group by which a batch system knows the machine; 0: any will do, and the
// user's own number is the first choice.
func (l *Libvirt) OwnGroup(ctx context.Context, uid, tracked uint32) (gid uint32, why string, err error) {
	s, verdict, err := l.runsOn(ctx)
	if err != nil {
		return 0, "", err
	}
	return ownGroup(libDir(l.cfg.Socket), s.owner[1], verdict.Accelerator == KVM, uid, tracked)
}

// ownGroup is OwnGroup where libvirt's directories are in lib and its QEMU has the group qemu.
func ownGroup(lib string, qemu int, kvm bool, uid, tracked uint32) (uint32, string, error) {
	var needs []need
	add := func(path string, want fs.FileMode, try string) error {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		owner := info.Sys().(*syscall.Stat_t)
		needs = append(needs, need{path, owner.Gid, info.Mode(), want, try})
		return nil
	}
	err := add(lib, 0o1, "chmod o+x "+lib)
	if kvm && tracked == 0 {
		err = errors.Join(err, add("/dev/kvm", 0o6, openKVM))
	} else if kvm { // and never in the group kvm
		err = errors.Join(err, add("/dev/kvm", 0o6, "chmod 0666 /dev/kvm"))
	}
	if err != nil {
		return 0, "", err
	}
	gid, why := groupFor(uid, tracked, uint32(qemu), needs)
	return gid, why, nil
}

// libDir is where libvirt keeps a directory for each machine, which its QEMU has to pass through.
func libDir(socket string) string {
	private := filepath.Join(filepath.Dir(filepath.Dir(socket)), "lib", "qemu") // of scripts/private-libvirtd
	if _, err := os.Stat(private); err == nil {
		return private
	}
	return "/var/lib/libvirt/qemu"
}

// groupFor chooses the group of a user who has no other: its own number where that is enough, for then nobody else is
// in it; or else the one that has what it needs. It is pure.
func groupFor(uid, tracked, qemu uint32, needs []need) (gid uint32, why string) {
	groups := []uint32{tracked}
	if tracked == 0 {
		groups = []uint32{uid, qemu}
		for _, n := range needs {
			groups = append(groups, n.gid)
		}
	}
	for i, gid := range groups {
		if gid == 0 && i > 0 {
			continue // root's
		}
		closed := ""
		for _, n := range needs {
			if !n.opens(gid) {
				closed = fmt.Sprintf("a user without an account cannot open %s (mode %04o, group %d); try: %s", n.path,
					n.mode.Perm(), n.gid, n.try)
				break
			}
		}
		if closed == "" {
			return gid, ""
		}
		why = closed
	}
	return 0, why
}

// opens reports whether one who is not the owner, and in that group alone, gets what is needed. The kernel asks the
// group first.
func (n need) opens(gid uint32) bool {
	bits := n.mode.Perm()
	if gid == n.gid && gid != 0 {
		bits >>= 3
	}
	return bits&n.want == n.want
}
