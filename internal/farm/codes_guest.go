package farm

// Codes of VMs and of what they see of their hosts.
const (
	CodeVMPort      Code = "vm-port"      // a port of a VM does not answer
	CodeBindRefused Code = "bind-refused" // a bind of files by which a host is controlled
)
