package farm

// Of recorded hosts.
const (
	CodeBadRecording Code = "bad-recording" // it cannot be read, or holds no host
	CodeLostOutput   Code = "lost-output"   // what a command said could not be written
)
