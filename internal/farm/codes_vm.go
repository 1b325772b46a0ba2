package farm

// Codes of what a VM refuses to those who want to enter it.
const (
	CodeOtherImage Code = "other-image" // a task asks for another image than its job's VM has
)
