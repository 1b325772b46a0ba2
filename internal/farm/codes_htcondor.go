package farm

// Codes of HTCondor's hooks.
const (
	CodeBadWish      Code = "bad-wish"      // what a job's ad asks of grange makes no sense
	CodeNoMetal      Code = "no-metal"      // a job asks to run on the host itself, which the host does not allow
	CodeNoJobAd      Code = "no-job-ad"     // the job's ad is missing, or may be the user's own
	CodeCondorConfig Code = "condor-config" // HTCondor is not configured as its jobs in VMs need it
)
