package farm

// Errors about what a site lets jobs have, and about wrappers of batch systems.
const (
	CodePolicy Code = "not-allowed" // a rule of the site's policy says no
	// a submission has an option that the batch system would run on the host, beside the job
	CodeOnHost       Code = "on-the-host"
	CodeWrongBatch   Code = "wrong-batch"   // the caller is not a job of the batch system that it names
	CodeUnknownQueue Code = "unknown-queue" // a rule looks at account or queue, and nobody can tell them
	CodeNoNames      Code = "no-names"      // the host's name service does not say who a user or group is
	// nothing on the host tells what a batch job was given, and its batch system does not answer
	CodeUnknownSize Code = "unknown-size"
	CodeScriptSize  Code = "script-too-big"  // a job's script is too big to be sent into a VM
	CodeStatusTaken Code = "status-taken"    // a job ended with a status that means something else to its batch system
	CodeGivenUp     Code = "vm-never-starts" // a job was queued again as often as it may be
)
