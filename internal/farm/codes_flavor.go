package farm

// Errors of OpenStack's words for a VM.
const (
	CodeBadCase          Code = "bad-case"          // a recorded placement case that cannot be read
	CodeBadProperty      Code = "bad-property"      // a hw: or hw_ property that makes no sense
	CodePropertyConflict Code = "property-conflict" // an image asks for what its flavor forbids
)
