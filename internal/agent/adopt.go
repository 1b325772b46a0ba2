package agent

import (
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/hyper"
)

// adopt puts the VM's process where the batch system limits, accounts, freezes and kills the job: when the VM is made,
// before the guest's memory is touched; and again when the task whose groups it sits in has ended before the others. A
// VM that cannot be put there must not run: it would have more than its job was given. 0 is the process of a hypervisor
// that has none.
func adopt(groups []string, q hyper.Applied) error {
	if q.PID == 0 {
		return nil
	}
	return machine.Adopt("/", groups, q.PID, q.Started)
}

// enters is what has a process that is about to become QEMU put into the job's control groups; nil where the job has
// none. In groups of version 2 memory stays with the group that it was first charged to, so what is adopted later
// leaves all that QEMU took at its start with libvirt's group: some 70 MiB, and its huge pages where those count. adopt
// comes all the same: it finds QEMU there, or brings it.
func (j *job) enters(log *slog.Logger) func(pid int) {
	groups := j.caller.Batch.Cgroups
	if len(groups) == 0 {
		return nil
	}
	return func(pid int) {
		// libvirt waits for QEMU's first words, which one that is frozen would not say.
		if machine.Frozen(j.caller.PID) || machine.LibvirtMoves(os.DirFS("/"), pid) {
			return
		}
		pins := new(unix.CPUSet)
		unpinned := unix.SchedGetaffinity(pid, pins)
		if err := machine.Enter("/", groups, pid); err != nil {
			log.Warn("QEMU starts outside of its job's control groups", "vm", j.vm.recordNow().Name, "error", err)
		}
		if unpinned == nil { // see repin; adopt refuses what cannot be
			unix.SchedSetaffinity(pid, pins)
		}
	}
}
