package farm

import (
	"time"
)

// BatchSystem names the kind of a batch system.
type BatchSystem string

// Some of them are more to others than an entry of internal/batch/systems, which is the list.
const (
	Slurm      BatchSystem = "slurm"
	GridEngine BatchSystem = "gridengine"
	HTCondor   BatchSystem = "htcondor"
	PBS        BatchSystem = "pbs"
	LSF        BatchSystem = "lsf"
)

// ExecDriver is the driver for all other batch systems: a site's own program.
const ExecDriver BatchSystem = "exec"

// Allotment is what a batch system has given to the job that a process belongs to, as the kernel and the batch system's
// own files tell. Nothing in it comes from the process's environment, which is its user's.
type Allotment struct {
	System  BatchSystem // "": the process belongs to no batch job
	Job     string      // the batch system's own ID of the job on this host
	Step    string      // the part of the job that the process belongs to; "" where the system has none
	CPUs    CPUSet      // host threads that the job may use; empty: the process's affinity is all that is known
	Slots   int         // CPUs that the job was given, where the system counts them but confines nothing; 0: not known
	Memory  Bytes       // what the job may use, QEMU's own need included; 0: no limit known
	Ends    time.Time   // when the batch system will end the job; zero: not known
	Account string      // whom the batch system charges; "": not known
	Queue   string      // queue or partition; "": not known
	// directories below /sys/fs/cgroup that the VM's processes have to join: they limit, account, freeze and kill
	Cgroups []string
	Group   uint32 // the group by which the batch system tracks the job's processes; 0: none
}

// Key is what all processes of one job on this host have in common; "" outside of batch jobs.
func (a Allotment) Key() string {
	if a.System == "" {
		return ""
	}
	return string(a.System) + "/" + a.Job
}
