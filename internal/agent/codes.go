package agent

import "github.com/grange-project/grange/internal/farm"

// Codes of errors of jobs and their VMs; docs/errors.md explains these and all below.
const (
	CodeHiddenCaller farm.Code = "hidden-caller"
	CodeTwoAgents    farm.Code = "two-agents"
	CodeRecovering   farm.Code = "agent-recovering" // the agent does not know yet which VMs run on its host
	CodeVMLost       farm.Code = "vm-lost"          // a VM ended under its job
	CodeVMStopped    farm.Code = "vm-stopped"
	CodeDiskBound    farm.Code = "disk-bound" // a VM's overlay has outgrown what it may take
)

// CodeSlowRequest is of a request whose body did not come in time.
const CodeSlowRequest farm.Code = "slow-request"

// Codes of errors about what is known of a batch job.
const (
	CodeWrongBatch   farm.Code = "wrong-batch"   // the caller is not a job of the batch system that it names
	CodeUnknownQueue farm.Code = "unknown-queue" // a rule looks at account or queue, and nobody can tell them
	// nothing on the host tells what a batch job was given, and its batch system does not answer
	CodeUnknownSize farm.Code = "unknown-size"
)

// Codes of what a VM refuses to those who want to enter it.
const (
	CodeOtherImage farm.Code = "other-image" // a task asks for another image than its job's VM has
	CodeJobDiffers farm.Code = "job-differs" // a job that is known is asked for again, with another request
)

// Codes of errors of workers: VMs that join a batch system as nodes.
const (
	CodeNoWorkers    farm.Code = "no-workers"     // the host is not configured for workers
	CodeNotSite      farm.Code = "not-site-image" // a worker of an image that the site does not vouch for
	CodeWorkerExists farm.Code = "worker-exists"
)
