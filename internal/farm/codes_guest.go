package farm

// Codes of VMs and of what they see of their hosts.
const (
	CodeGuestUnresponsive Code = "guest-unresponsive" // a VM's guest came up, and does not answer any more
	CodeNoUserNetwork     Code = "no-user-network"    // the host cannot be kept from a VM with the network user
	CodeVMPort            Code = "vm-port"            // a port of a VM does not answer
	CodeBindRefused       Code = "bind-refused"       // a bind of files by which a host is controlled
)
