package disk

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/grange-project/grange/internal/farm"
)

func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// NoSpace returns an error of the system that a file system or a quota is full as one that names the directory,
// farm.CodeDiskFull. Every other error, and one of ours, stays as it is.
func NoSpace(err error) error {
	own := new(farm.Error)
	if !full(err) || errors.As(err, &own) {
		return err
	}
	return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeDiskFull, Err: err,
		Message: "the file system of " + fullDir(err) + " is full",
		Hint:    "free space or a quota there (`df`, `df -i`), or wait until other VMs have ended"}
}

// fullDir is where the file was to be that found no space.
func fullDir(err error) string {
	var file *fs.PathError
	var link *os.LinkError
	var socket *net.OpError
	switch {
	case errors.As(err, &file):
		return filepath.Dir(file.Path)
	case errors.As(err, &link):
		return filepath.Dir(link.New)
	case errors.As(err, &socket) && socket.Addr != nil:
		return filepath.Dir(socket.Addr.String())
	}
	return "this host"
}
