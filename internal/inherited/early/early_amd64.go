package early

func openFiles() *Rlimit {
	l := new(Rlimit)
	const numberOpenFiles = 7 // RLIMIT_NOFILE
	if getrlimit(numberOpenFiles, l) != 0 {
		return nil
	}
	return l
}

// getrlimit is the system call. Package syscall cannot be used here.
//
//go:noescape
func getrlimit(resource int64, to *Rlimit) (errno int64)
