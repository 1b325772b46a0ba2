package farm

// Errors of Slurm's containers.
const (
	CodeBadBundle Code = "bad-bundle"    // what --container names is no bundle for a VM, or Slurm handed over what makes no sense
	CodeNoOCI     Code = "oci-not-ready" // this host would run jobs with --container on the host itself, or may
)
