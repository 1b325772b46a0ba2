package farm

// Errors of Slurm's containers.
const (
	// what --container names is no bundle for a VM, or Slurm handed over what makes no sense
	CodeBadBundle Code = "bad-bundle"
	CodeNoOCI     Code = "oci-not-ready" // this host would run jobs with --container on the host itself, or may
)
