package farm

// Errors of cloud VMs on their host.
const (
	CodeVMPort Code = "vm-port" // a port of a VM does not answer
)
