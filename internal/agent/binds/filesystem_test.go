package binds

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/mounts"
)

func alive() bool { return true }

func TestFileSystem(t *testing.T) {
	d, err := os.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	fd := int(d.Fd())
	m := fileSystem(Caller{PID: os.Getpid(), Alive: alive}, fd)
	if m == nil || m.Type != "proc" || m.Point != "/proc" {
		t.Errorf("%+v", m)
	}
	if v := viewFileSystem(m); v == nil || v.Type != "proc" || v.Network {
		t.Errorf("%+v", v)
	}
	gone := Caller{PID: os.Getpid(), Alive: func() bool { return false }}
	if m := fileSystem(gone, fd); m != nil {
		t.Errorf("of a caller that is gone: %+v", m)
	}
	for _, fd := range []int{0, 1 << 20} {
		if m := fileSystem(Caller{PID: os.Getpid(), Alive: alive}, fd); m != nil || viewFileSystem(m) != nil {
			t.Errorf("%d: %+v", fd, m)
		}
	}
}

// TestFileSystemHangs has a directory of a file system whose server never answers.
func TestFileSystemHangs(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount")
	}
	dir := t.TempDir()
	type result struct {
		m   *mounts.Mount
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends, and its mounts with it
		m, err := ofHungServer(dir)
		done <- result{m, err}
	}()
	r := <-done
	if r.err != nil {
		t.Skip("cannot mount by FUSE here: ", r.err)
	}
	want := mounts.Mount{Point: dir, Type: "fuse.sshfs", Source: "server:/export"}
	if r.m != nil {
		want.Device = r.m.Device
	}
	if r.m == nil || *r.m != want || want.Device == "" || !r.m.Network() {
		t.Errorf("%+v", r.m)
	}
}

// ofHungServer mounts in a namespace of this thread's own, and answers no request.
func ofHungServer(dir string) (*mounts.Mount, error) {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return nil, err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, err
	}
	server, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(server)
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server)
	if err := unix.Mount("server:/export", dir, "fuse.sshfs", 0, options); err != nil {
		return nil, err
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return fileSystem(Caller{PID: unix.Gettid(), Alive: alive}, fd), nil
}
