// Package early notes what the library of Go changes of this process before its main function. Package syscall raises
// the soft limit of open files when it is initialized. Packages are initialized in the order of their import paths as
// far as their imports allow: this one has no imports, and is initialized before syscall.
package early

// Rlimit is a limit of setrlimit(2).
type Rlimit struct{ Soft, Hard uint64 }

// OpenFiles is the limit of open files that the process was started with; nil: it is not known.
var OpenFiles = openFiles()
