// Package mountstest has file systems for tests whose server never answers.
package mountstest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Hung is a mounted file system of a server that has stopped. It is seen by one thread alone, so that nothing else of
// the machine meets it.
type Hung struct {
	Thread int    // its ID: /proc/Thread is a process that has it mounted
	Dir    string // where
	FD     int    // Dir, open there
	Parent int    // the directory that Dir is in, open there
	do     chan func()
}

// The words by which it is mounted.
const (
	Type   = "fuse.sshfs"
	Source = "server:/export"
)

// Mount mounts one until the test ends, or skips the test.
func Mount(t *testing.T) *Hung {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount")
	}
	h := &Hung{Dir: filepath.Join(t.TempDir(), "data"), do: make(chan func())}
	began, ended := make(chan error), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // and never unlocked: the thread ends, and its mounts with it
		server, err := h.mount()
		began <- err
		if err != nil {
			return
		}
		for do := range h.do {
			do()
		}
		unix.Close(server) // whoever waits for an answer has an error
		unix.Close(h.FD)
		unix.Close(h.Parent)
		unix.Unmount(h.Dir, unix.MNT_DETACH)
	}()
	if err := <-began; err != nil {
		t.Skip("cannot mount by FUSE here: ", err)
	}
	t.Cleanup(func() { close(h.do); <-ended })
	return h
}

// Do calls do on the thread that has it mounted.
func (h *Hung) Do(do func()) {
	done := make(chan struct{})
	h.do <- func() { defer close(done); do() }
	<-done
}

func (h *Hung) mount() (server int, err error) {
	h.Thread = unix.Gettid()
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return -1, err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return -1, err
	}
	const dir = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	h.Parent, err = unix.Open(filepath.Dir(h.Dir), dir, 0)
	server, failed := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err = errors.Join(err, failed, os.Mkdir(h.Dir, 0o755)); err != nil {
		return -1, err
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server)
	if err := unix.Mount(Source, h.Dir, Type, 0, options); err != nil {
		return -1, err
	}
	h.FD, err = unix.Open(h.Dir, dir, 0)
	return server, err
}
