package farm

// Errors about VMs and hosts of the fleet.
const (
	CodeVMState      Code = "wrong-state"        // a VM is not in a state that allows this
	CodeBadVM        Code = "bad-vm-request"     // a request for a VM makes no sense
	CodeBadKey       Code = "bad-ssh-key"        // a public SSH key cannot be read
	CodeNoProject    Code = "no-project"         // no project of that name
	CodeNoGroup      Code = "no-group"           // no server group of that name
	CodeGroupUsed    Code = "group-in-use"       // VMs name it
	CodeNoNetwork    Code = "no-network"         // no network of that name that the project may use
	CodeNameTaken    Code = "name-taken"         // another VM of the project has the name
	CodeNoIsolation  Code = "no-isolation"       // a network is to keep VMs apart, which no host does
	CodeNoLease      Code = "no-lease"           // a network has no address, or no host name, left
	CodeAddressTaken Code = "address-taken"      // a static address is another VM's
	CodeImage        Code = "image-not-allowed"  // the project may not have the image
	CodeShape        Code = "shape-not-allowed"  // the project may not have the shape
	CodeBeyondMaxima Code = "beyond-maxima"      // more than the site lets any VM have
	CodeNoHost       Code = "no-host"            // no such host
	CodeHostHasVMs   Code = "host-has-vms"       // a host with VMs cannot be forgotten
	CodeHostAnswers  Code = "host-answers"       // a host that reports is neither fenced nor replaced
	CodeReportLong   Code = "report-too-long"    // a host reports more VMs than it can have
	CodeNoResize     Code = "no-resize"          // VMs of a batch cell keep their size
	CodeDraining     Code = "being-drained"      // the VM's host is emptied
	CodeStreams      Code = "too-many-streams"   // as many streams as a server carries
	CodeNoStream     Code = "host-did-not-bring" // a host did not bring a stream in time
)
