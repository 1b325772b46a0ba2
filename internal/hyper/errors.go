package hyper

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

// Errors of every hypervisor, by code.
const (
	CodeAway       farm.Code = "hypervisor-away"    // the hypervisor's daemon does not answer
	CodeRefused    farm.Code = "machine-refused"    // the hypervisor refused to make or change a machine
	CodeNoMachine  farm.Code = "no-machine"         // there is no such machine
	CodeExists     farm.Code = "machine-exists"     // a machine with this ID or name runs already
	CodeBadMachine farm.Code = "bad-machine"        // a Machine that no hypervisor could start
	CodeWillNotEnd farm.Code = "machine-wont-end"   // its process was killed and is still there
	CodeRootQEMU   farm.Code = "root-qemu"          // the hypervisor would run QEMU as root
	CodeUnreadable farm.Code = "process-unreadable" // /proc does not say where a machine's threads run
	CodeNoFirmware farm.Code = "no-firmware"        // the host lacks UEFI, which the machine's disk needs
	CodeCPUModel   farm.Code = "cpu-model"          // the host's CPU lacks what the model has that was asked for
)

// NoMachine is the error for a machine that is not, or no longer, there.
func NoMachine(id string) error {
	return &farm.Error{Kind: farm.NotFound, Code: CodeNoMachine,
		Message: fmt.Sprintf("no machine %s runs on this host", id)}
}

// Check reports what is wrong with a machine before any hypervisor sees it: nil, or a farm.Error of kind Invalid.
func (m Machine) Check() error {
	bad := func(format string, args ...any) error {
		return &farm.Error{Kind: farm.Invalid, Code: CodeBadMachine,
			Message: fmt.Sprintf("machine %s: ", m.Name) + fmt.Sprintf(format, args...)}
	}
	g := m.Plan.Guest
	switch n := len(m.Plan.VCPUs); {
	case m.ID == "" || m.Name == "":
		return bad("has no ID or no name")
	case n == 0:
		return bad("has no vCPUs")
	case g.Sockets*g.Cores*g.Threads != n:
		return bad("%d sockets × %d cores × %d threads do not make %d vCPUs", g.Sockets, g.Cores, g.Threads, n)
	case len(m.Plan.Cells) == 0:
		return bad("has no memory")
	case m.Boot.Kernel == "" && len(m.Disks) == 0:
		return bad("has neither a kernel nor a disk to boot from")
	}
	var seen farm.CPUSet
	for i, c := range m.Plan.Cells {
		if c.Memory == 0 || c.Memory%farm.KiB != 0 {
			return bad("memory of cell %d is %s, not a whole number of KiB", i, c.Memory)
		}
		if c.PageSize != 0 && c.Memory%c.PageSize != 0 {
			return bad("memory of cell %d is %s, not a whole number of %s pages", i, c.Memory, c.PageSize)
		}
		if !seen.And(c.VCPUs).Empty() {
			return bad("vCPUs %s are in two cells", seen.And(c.VCPUs))
		}
		seen = seen.Or(c.VCPUs)
	}
	if n := len(m.Plan.VCPUs); seen.Len() != n || seen.List()[n-1] != n-1 {
		return bad("its cells hold vCPUs %s of %d", seen, n)
	}
	for _, d := range m.Disks {
		if d.Format != "raw" && d.Format != "qcow2" {
			return bad("disk %s has format %q; raw and qcow2 are known", d.Path, d.Format)
		}
	}
	for _, s := range m.Shares {
		if s.Tag == "" || len(s.Tag) > maxTag || s.Path == "" {
			return bad("the share %q has no socket, or a tag that is not of 1 to %d bytes", s.Tag, maxTag)
		}
	}
	return nil
}

// maxTag is the most that virtiofs has room for.
const maxTag = 36
