package farm

// Codes of what a VM refuses to those who want to enter it.
const (
	CodeNoDirectory Code = "no-directory" // the job's working directory is not in the VM
	CodeOtherImage  Code = "other-image"  // a task asks for another image than its job's VM has
	CodeJobDiffers  Code = "job-differs"  // a job that is known is asked for again, with another request
)

// Codes of the users that VMs run as.
const (
	CodeNoVMUID   Code = "no-vm-uid"     // all user IDs of VMs are in use
	CodeUIDsTaken Code = "vm-uids-taken" // the user IDs of VMs are others' as well
)
