package app

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/grange-project/grange/internal/program"
)

// OwnPath is where this program lies. The kernel knows; without /proc, as in the chroot of a host's image, how it was
// called does.
func OwnPath() (string, error) {
	self, err := os.Executable()
	if err == nil {
		return self, nil
	}
	if called := os.Args[0]; strings.Contains(called, "/") {
		return filepath.Abs(called)
	}
	found, missing := program.Find(os.Args[0], filepath.SplitList(os.Getenv("PATH"))...)
	if missing != nil {
		return "", err
	}
	return filepath.Abs(found)
}
