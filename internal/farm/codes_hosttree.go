package farm

// Of recorded hosts.
const (
	CodeBadRecording Code = "bad-recording" // it cannot be read, or holds no host
	CodeNoRecording  Code = "no-recording"  // it cannot be written
)
