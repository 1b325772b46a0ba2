package farm

// Errors of joining a VM to its batch job.
const (
	CodeHiddenCgroup Code = "hidden-cgroup" // the agent does not see the control groups of its caller's batch job
	CodeStrangeJob   Code = "strange-job"   // what the kernel tells of a batch job contradicts itself
	CodeBelowMinimum Code = "below-minimum" // the host has less of something than its configuration wants free
	CodeHostDrained  Code = "host-drained"  // no VM starts on the host until a change of it is over
	CodeNotAdopted   Code = "not-adopted"   // QEMU could not be put where the batch system keeps its job
)
