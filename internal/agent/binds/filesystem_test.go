package binds

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
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
	m, err := apart(func() (*mounts.Mount, error) { return ofHungServer(dir) })
	if err != nil {
		t.Skip("cannot mount by FUSE here: ", err)
	}
	want := mounts.Mount{Point: dir, Type: "fuse.sshfs", Source: "server:/export"}
	if m != nil {
		want.Device = m.Device
	}
	if m == nil || *m != want || want.Device == "" || !m.Network() {
		t.Errorf("%+v", m)
	}
}

// apart calls do in a mount namespace of a thread's own.
func apart[T any](do func() (T, error)) (value T, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends, and its mounts with it
		if err = unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
			return
		}
		if err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return
		}
		value, err = do()
	}()
	<-done
	return value, err
}

// ofHungServer answers no request.
func ofHungServer(dir string) (*mounts.Mount, error) {
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

// TestOnDemand: a directory of an automounter comes by FUSE, or not at all.
func TestOnDemand(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount")
	}
	dir := t.TempDir()
	type result struct {
		auto, virtiofs []Bound
		refused        error
	}
	r, err := apart(func() (r result, err error) {
		d, err := ofAutomounter(dir)
		if err != nil {
			return r, err
		}
		defer d.Close()
		serve := func(gateway farm.Gateway) ([]Bound, error) {
			return Serve(t.Context(), nil, new(hyper.Machine), []api.Bind{{Target: "/cvmfs", FD: int(d.Fd()),
				Gateway: string(gateway)}}, Caller{PID: unix.Gettid(), Alive: alive})
		}
		r.virtiofs, r.refused = serve(farm.Virtiofs)
		r.auto, err = serve(farm.AnyGateway)
		return r, err
	})
	if errors.Is(err, unix.ENODEV) {
		t.Skip("this kernel has no autofs")
	}
	if err != nil || len(r.auto) != 1 || r.auto[0].Gateway != farm.FUSE || r.auto[0].Why != streamed[autofs] {
		t.Errorf("auto: %+v, %v", r.auto, err)
	}
	if r.virtiofs != nil || !farm.IsCode(r.refused, farm.CodeNoGateway) {
		t.Errorf("virtiofs: %+v, %v", r.virtiofs, r.refused)
	}
}

// ofAutomounter mounts as an automounter does.
func ofAutomounter(dir string) (*os.File, error) {
	requests, pipe, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer requests.Close()
	defer pipe.Close()
	options := fmt.Sprintf("fd=%d,pgrp=%d,minproto=5,maxproto=5,indirect", pipe.Fd(), unix.Getpgrp())
	if err := unix.Mount("/etc/auto.cvmfs", dir, "autofs", 0, options); err != nil {
		return nil, err
	}
	return os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
}
