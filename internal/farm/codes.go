package farm

// Every error a user may meet, by code. docs/errors.md explains each; a test holds the two together.
const (
	CodeBadSize    Code = "bad-size"
	CodeBadCPUList Code = "bad-cpu-list"
	CodeBadShape   Code = "bad-shape"
	CodeNoRoom     Code = "no-room"    // the host cannot hold it now
	CodeTooBig     Code = "too-big"    // the host, or the caller's share of it, can never hold it
	CodeUserLimit  Code = "user-limit" // one user may not have that much of the host
	CodeBadPlan    Code = "bad-plan"   // a check of pins against the host failed
	CodeBadTree    Code = "bad-topology"

	CodeBadConfig Code = "bad-config"

	CodeBadRequest    Code = "bad-request"
	CodeBadPins       Code = "bad-pins" // the kernel does not run a VM where the plan says
	CodeNoShape       Code = "no-shape"
	CodeNoVM          Code = "no-vm"
	CodeHiddenCaller  Code = "hidden-caller"
	CodeNotYours      Code = "not-yours"
	CodeTwoAgents     Code = "two-agents"
	CodeRecovering    Code = "agent-recovering" // the agent does not know yet which VMs run on its host
	CodeGuestSilent   Code = "guest-silent"     // a VM's guest did not come up
	CodeJobNotStarted Code = "job-not-started"  // the guest could not start the job
	CodeVMLost        Code = "vm-lost"          // a VM ended under its job
	CodeVMStopped     Code = "vm-stopped"
	CodeVMDiskFull    Code = "vm-disk-full" // the host had no space for what a VM wrote
	CodeDiskBound     Code = "disk-bound"   // a VM's overlay has outgrown what it may take
	CodeNoAgent       Code = "no-agent"
	CodeUsage         Code = "usage"
	CodeInternal      Code = "internal"
)
