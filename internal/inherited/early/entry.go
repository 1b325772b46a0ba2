package early

// Ignored and Blocked are the signals that were ignored and blocked when the program started: bit n-1 is signal n. They
// are valid if Signals is true: if the linker was told of entry, by -E.
var (
	Ignored, Blocked uint64
	Signals          bool
)
