package runner

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/batch/systems"
	"github.com/grange-project/grange/internal/farm"
)

// outOfMemory reports that the VM's kernel has killed for want of memory. On the host the batch system would know by
// itself, for the job's own control group would have counted the kill; in a VM the guest's kernel kills, and the group
// stays below its limit by what QEMU needs. So we leave there what a job on the host leaves.
func (j *Job) outOfMemory(kills int) {
	size := "what it has"
	j.mu.Lock()
	if j.vm != nil {
		size = farm.Bytes(j.vm.Memory).Rounded().String()
	}
	j.mu.Unlock()
	processes := "a process"
	if kills > 1 {
		processes = fmt.Sprintf("%d processes", kills)
	}
	j.out.printf("out of memory in the VM: the job wanted more than %s, and the VM's kernel killed %s", size, processes)
	if j.batch == nil {
		return
	}
	if a, err := systems.JobOf(os.DirFS("/"), os.Getpid()); err == nil && groupLimits(a) {
		meetLimit(a.Memory)
	}
}

// groupLimits reports whether a control group has the job's memory limit. Where a batch system adds up the job's
// processes instead, there is no kernel that would kill us at the limit, and what we took would be the host's.
func groupLimits(a farm.Allotment) bool { return a.Memory > 0 && len(a.Cgroups) > 0 }

// slack is more than the limit: pages that the kernel counts a moment later, and page tables.
const slack = 64 * farm.MiB

// meetLimit takes memory until the control group's limit is met and the kernel kills this process, first of all in the
// group: the batch system then sees what it sees when a job on the host exceeds its memory, and reports the job so.
// QEMU is there still, with all the memory that its guest has touched, so little is left to take. All output has been
// delivered by now, and the VM goes with us. Where no limit is met after all, the memory is given back and the job ends
// with its own status. It never takes more than the limit, which is the job's.
func meetLimit(limit farm.Bytes) {
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0); err != nil {
		return // someone else in the group could be killed in our place
	}
	const step = 4 * farm.MiB
	var held [][]byte
	for taken := farm.Bytes(0); taken < limit+slack; taken += step {
		part, err := unix.Mmap(-1, 0, int(step), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
		if err != nil {
			break
		}
		held = append(held, part)
	}
	for _, part := range held {
		unix.Munmap(part)
	}
}
