package farm

import (
	"slices"
	"strings"
	"time"
)

// BatchSystem names the kind of a batch system.
type BatchSystem string

// The batch systems whose jobs the agent recognises.
const (
	Slurm      BatchSystem = "slurm"
	GridEngine BatchSystem = "gridengine"
	HTCondor   BatchSystem = "htcondor"
	PBS        BatchSystem = "pbs"
	LSF        BatchSystem = "lsf"
)

// BatchSystems are all of them.
var BatchSystems = []BatchSystem{Slurm, GridEngine, HTCondor, PBS, LSF}

// ExecDriver is the driver for all other batch systems: a site's own program.
const ExecDriver BatchSystem = "exec"

// BatchDrivers are the drivers that there are: what a host's agent can be told to close itself in, and a cell can be
// booked in.
var BatchDrivers = append(slices.Clip(BatchSystems), ExecDriver)

// BatchDriverNames are BatchDrivers as people read them.
func BatchDriverNames() string {
	var names []string
	for _, d := range BatchDrivers {
		names = append(names, string(d))
	}
	return strings.Join(names, ", ")
}

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
