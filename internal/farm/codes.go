package farm

// Here are the codes of errors that several packages return or look for. Each other one is declared by the package that
// returns it. docs/errors.md explains all; a test holds the two together.

// Errors of requests, sizes and configurations, and of OpenStack's words for them.
const (
	CodeBadSize          Code = "bad-size"
	CodeBadRate          Code = "bad-bandwidth"
	CodeNotLimited       Code = "not-limited" // a VM's network has no bandwidth that could be limited
	CodeNoNetwork        Code = "no-network"  // no network of that name, or none that the project may use
	CodeBadCPUList       Code = "bad-cpu-list"
	CodeBadShape         Code = "bad-shape"
	CodeNoRoom           Code = "no-room"  // the host cannot hold it now
	CodeTooBig           Code = "too-big"  // the host, or the caller's share of it, can never hold it
	CodeBadPlan          Code = "bad-plan" // a check of pins against the host failed
	CodeBadTree          Code = "bad-topology"
	CodeBadConfig        Code = "bad-config"
	CodeBadRequest       Code = "bad-request"
	CodeNoShape          Code = "no-shape"
	CodeNoVM             Code = "no-vm"
	CodeNoFileSystem     Code = "no-file-system"
	CodeNotYours         Code = "not-yours"
	CodeJobNotStarted    Code = "job-not-started" // the guest could not start the job
	CodeUsage            Code = "usage"
	CodeInternal         Code = "internal"
	CodeBadProperty      Code = "bad-property"      // a hw: or hw_ property that makes no sense
	CodePropertyConflict Code = "property-conflict" // an image asks for what its flavor forbids
	CodePolicy           Code = "not-allowed"       // a rule of the site's policy says no
	CodeNoNames          Code = "no-names"          // the host's name service does not say who a user or group is
	CodeScriptSize       Code = "script-too-big"    // a job's script is too big to be sent into a VM
)

// Errors of VMs, of what runs in them, and of their moves.
const (
	CodeGuestUnresponsive Code = "guest-unresponsive" // a VM's guest came up, and does not answer any more
	CodeNoUserNetwork     Code = "no-user-network"    // the host cannot be kept from a VM with the network user
	CodeNoDHCP            Code = "no-dhcp"            // the host's DHCP server for a network does not run
	CodeNoFilter          Code = "no-filter"          // what a VM sends on its bridge cannot be filtered
	CodeVMPort            Code = "vm-port"            // a port of a VM does not answer
	CodeNoDisplay         Code = "no-display"         // a VM has no display, or it does not answer
	CodeNoGateway         Code = "no-gateway"         // a bind cannot have the gateway that it asks for
	CodeNoDirectory       Code = "no-directory"       // the job's working directory is not in the VM
	CodeUIDsTaken         Code = "vm-uids-taken"      // the user IDs of VMs are others' as well
	CodeNoBridge          Code = "no-bridge"          // the host does not have the bridge of a VM's network
	CodeMoveFailed        Code = "move-failed"        // a move has failed; its VM runs on where it was
	CodeNoMove            Code = "no-move"            // a VM is not moved, and was not
	CodeVMState           Code = "wrong-state"        // a VM is not in a state that allows this
	CodeBeyondMaxima      Code = "beyond-maxima"      // more than the site lets any VM have
	CodeHostAnswers       Code = "host-answers"       // a host that reports is neither fenced nor replaced
	CodeNotCarried        Code = "not-carried"        // the host may not, or cannot, carry the network of a VM
	CodeNotHeld           Code = "bandwidth-not-held" // what a VM receives could not be limited
	CodeBadRule           Code = "bad-security-rule"  // a rule of a security group that cannot be
	CodeBadAddress        Code = "bad-address"
	CodeBadNetworkID      Code = "bad-network-id"
)

// Errors of images and disks.
const (
	CodeNoImage    Code = "no-such-image"
	CodeImageInUse Code = "image-in-use"
	CodeBadImage   Code = "bad-image" // a file that is not an image grange can run safely
	CodeImageStore Code = "image-store"
	CodeDiskFull   Code = "disk-full"
	CodeDiskTool   Code = "disk-tool" // qemu-img or mke2fs is missing or complains
)

// Errors about who may do what in the fleet, where a project's VMs go, and farm files.
const (
	CodeNoRole      Code = "no-role"      // no role of the caller allows it
	CodeNoCell      Code = "no-cell"      // no cell is for the project, and there is no default one
	CodeCellsClosed Code = "cells-closed" // all the cells of the project are closed
	CodeForeignCell Code = "foreign-cell" // the cell is not for the project
	CodeNoSuchCell  Code = "no-such-cell" // no cell of that name
	CodeQuota       Code = "over-quota"   // more than a project or cell may have
	CodeBadName     Code = "bad-name"     // a name that no object of the farm can have
	// a farm that cannot be: an object makes no sense, or names what is not there
	CodeBadFarm Code = "bad-farm"
)

// Errors of the server's door, and of those who stand before it.
const (
	// the caller has not said who it is, or in a way that the server does not accept
	CodeNotKnown     Code = "not-known"
	CodeNoLogin      Code = "no-login" // an issuer knows the caller, and no user has the login
	CodeTooManyBytes Code = "too-many-bytes"
	CodeTooManyJobs  Code = "too-many-jobs"
	CodeTooManyTries Code = "too-many-tries"
	// a user changes more than the server writes for one
	CodeTooManyChanges Code = "too-many-changes"
	CodeConnections    Code = "too-many-connections"
	CodeTooLarge       Code = "too-large"
	CodeOtherRequest   Code = "other-request"
	CodeFeedGone       Code = "feed-gone"
	CodeNoUpgrade      Code = "not-a-stream"
)

// Errors of the link between hosts and servers, on which the other side acts.
const (
	CodeRevokedCert Code = "host-certificate-revoked"
	CodeOtherAgent  Code = "another-agent"
	CodeAgentOld    Code = "agent-too-old"
	CodeAgentNew    Code = "agent-too-new"
	CodeReportFirst Code = "report-first" // the server does not know the agent that asks yet
)

// Errors of batch systems.
const (
	CodeBatchAway      Code = "batch-away" // a batch system does not answer
	CodeNoNode         Code = "no-such-node"
	CodeNotOurs        Code = "not-closed-by-us"
	CodeBadReservation Code = "bad-booking"  // the word that clients of earlier releases know
	CodeBackedOff      Code = "backed-off"   // VMs of an image, a user or the host keep failing to start
	CodeBatchLimits    Code = "batch-limits" // `grange batch check` cannot read what it is to check
	// a batch system's configuration is not where `check` looks, or makes no sense
	CodeBatchConf    Code = "batch-conf"
	CodeQconf        Code = "qconf-refused" // Grid Engine does not take a change of its configuration
	CodeCondorConfig Code = "condor-config" // HTCondor is not configured as its jobs in VMs need it
	// what --container names is no bundle for a VM, or Slurm handed over what makes no sense
	CodeBadBundle Code = "bad-bundle"
	CodeNoOCI     Code = "oci-not-ready" // a host would run jobs with --container on the host itself, or may
)

// Errors of auditing and changing how a host is set up, and of recorded hosts.
const (
	CodeNoRule       Code = "no-rule"
	CodeNoProfile    Code = "no-profile"
	CodeBadProfile   Code = "bad-profile"
	CodeVMsRunning   Code = "vms-running"   // the change has to wait for the last VM
	CodeUnfinished   Code = "unfinished"    // an earlier apply was cut short
	CodeNeedsRoot    Code = "needs-root"    // only root may change a host
	CodeBadJournal   Code = "bad-journal"   // the record of an apply cannot be read
	CodeBadRecording Code = "bad-recording" // it cannot be read, or holds no host
)
