package farm

// Errors of workers: VMs that join a batch system as nodes.
const (
	CodeBadAddress   Code = "bad-address"
	CodeNoWorkers    Code = "no-workers"     // the host is not configured for workers
	CodeNotSite      Code = "not-site-image" // a worker of an image that the site does not vouch for
	CodeNoAddress    Code = "no-address"     // all addresses of the pool are leased
	CodeWorkerExists Code = "worker-exists"
	CodeWorkersOnly  Code = "workers-only" // a network that jobs cannot have
	CodeBadHostList  Code = "bad-host-list"
	CodeSlurm        Code = "slurm-refuses" // scontrol did not do what it was asked
	CodeWorkerConfig Code = "bad-worker-config"
)
