package server

import "github.com/grange-project/grange/internal/farm"

// Codes of errors about users and their rights, and of applying a farm file; docs/errors.md explains these and all
// below.
const (
	CodeUserHasVMs    farm.Code = "user-has-vms" // a user that has VMs is not deleted
	CodeInUse         farm.Code = "in-use"       // what should go away is still needed
	CodeOtherPlan     farm.Code = "other-plan"   // an apply would do other things than were shown
	CodeNoUser        farm.Code = "no-user"
	CodeNoGrant       farm.Code = "no-grant"
	CodeNoToken       farm.Code = "no-token"
	CodeNoAction      farm.Code = "no-action"       // nothing that anybody could do in the fleet is called so
	CodeBadTokenOrder farm.Code = "bad-token-order" // a token that cannot be made
)

// Codes of errors about a caller, and about what it has seen.
const (
	// a user has a certificate's subject without the authority, of which there are several
	CodeUnboundCert farm.Code = "certificate-not-bound"
	CodeChanged     farm.Code = "changed" // another revision than If-Match says
)

// Codes of errors about VMs and hosts of the fleet.
const (
	CodeBadVM        farm.Code = "bad-vm-request"     // a request for a VM makes no sense
	CodeBadKey       farm.Code = "bad-ssh-key"        // a public SSH key cannot be read
	CodeNoProject    farm.Code = "no-project"         // no project of that name
	CodeNoGroup      farm.Code = "no-group"           // no server group of that name
	CodeGroupUsed    farm.Code = "group-in-use"       // VMs name it
	CodeNoNetwork    farm.Code = "no-network"         // no network of that name that the project may use
	CodeNameTaken    farm.Code = "name-taken"         // another VM of the project has the name
	CodeNoIsolation  farm.Code = "no-isolation"       // a network is to keep VMs apart, which no host does
	CodeNoLease      farm.Code = "no-lease"           // a network has no address, or no host name, left
	CodeAddressTaken farm.Code = "address-taken"      // a static address is another VM's
	CodeImage        farm.Code = "image-not-allowed"  // the project may not have the image
	CodeShape        farm.Code = "shape-not-allowed"  // the project may not have the shape
	CodeNoHost       farm.Code = "no-host"            // no such host
	CodeHostHasVMs   farm.Code = "host-has-vms"       // a host with VMs cannot be forgotten
	CodeReportLong   farm.Code = "report-too-long"    // a host reports more VMs than it can have
	CodeNoResize     farm.Code = "no-resize"          // VMs of a batch cell keep their size
	CodeDraining     farm.Code = "being-drained"      // the VM's host is emptied
	CodeStreams      farm.Code = "too-many-streams"   // as many streams as a server carries
	CodeNoStream     farm.Code = "host-did-not-bring" // a host did not bring a stream in time
)
