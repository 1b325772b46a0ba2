package server

import "github.com/grange-project/grange/internal/farm"

// Codes of errors about VMs and hosts of the fleet; see docs/errors.md.
const (
	CodeBadVM             farm.Code = "bad-vm-request"         // a request for a VM makes no sense
	CodeBadKey            farm.Code = "bad-ssh-key"            // a public SSH key cannot be read
	CodeNoGroup           farm.Code = "no-group"               // no server group of that name
	CodeGroupUsed         farm.Code = "group-in-use"           // VMs name it
	CodeNoSecurityGroup   farm.Code = "no-security-group"      // no security group of that name
	CodeSecurityGroupUsed farm.Code = "security-group-in-use"  // VMs or rules name it
	CodeDefaultGroup      farm.Code = "default-security-group" // a project's default group follows from the project
	CodeNameTaken         farm.Code = "name-taken"             // another VM of the project has the name
	CodeNoLease           farm.Code = "no-lease"               // a network has no address, or no host name, left
	CodeAddressTaken      farm.Code = "address-taken"          // a static address is another VM's
	CodeImage             farm.Code = "image-not-allowed"      // the project may not have the image
	CodeImageShape        farm.Code = "image-needs-plan"       // it asks for another plan than the VM has on its host
	CodeShape             farm.Code = "shape-not-allowed"      // the project may not have the shape
	CodeHostHasVMs        farm.Code = "host-has-vms"           // a host with VMs cannot be forgotten
	CodeNoResize          farm.Code = "no-resize"              // VMs of a batch cell keep their size
	CodeDraining          farm.Code = "being-drained"          // the VM's host is emptied
	CodeStreams           farm.Code = "too-many-streams"       // as many streams as a server carries
	CodeNoStream          farm.Code = "host-did-not-bring"     // a host did not bring a stream in time
)
