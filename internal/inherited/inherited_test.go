package inherited

import (
	"syscall"
	"testing"
)

func TestUmask(t *testing.T) {
	old := syscall.Umask(0o027)
	defer syscall.Umask(old)
	if got := Process().Umask; got == nil || *got != 0o027 {
		t.Errorf("umask is %v", got)
	}
	if got := umask("Name:\tx\n"); got != nil { // Linux before 4.7
		t.Errorf("umask is %o", *got)
	}
}
