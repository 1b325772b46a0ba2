//go:build !amd64

package early

func openFiles() *Rlimit { return nil }
