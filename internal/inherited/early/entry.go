package early

// Ignored and Blocked are the signals that were ignored and blocked when the program started: bit n-1 is signal n. They
// are valid if Signals is true: if the linker was told of entry, by -E.
var (
	Ignored, Blocked uint64
	Signals          bool
)

// Closed are the standard files that were closed when the program started, for which the runtime opens /dev/null: bit n
// is file n. It is 0 if the linker was not told of entry.
var Closed uint64
