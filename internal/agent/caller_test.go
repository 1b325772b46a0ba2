package agent

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/grange-project/grange/internal/agent/admission"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/procstat"
)

// TestCallerOf asks the kernel about ourselves.
func TestCallerOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialled, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	start, err := procstat.Started(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []uint64{0, start - 1, start + 1} {
		_, err := callerOf(&admission.Connection{UnixConn: conn.(*net.UnixConn), Start: other})
		if !farm.IsCode(err, CodeHiddenCaller) {
			t.Errorf("another process has the caller's number, and started at %d instead of %d: %v", other, start, err)
		}
	}
	c, err := callerOf(&admission.Connection{UnixConn: conn.(*net.UnixConn), Start: start})
	if err != nil {
		t.Fatal(err)
	}
	if c.PID != os.Getpid() || c.UID != uint32(os.Getuid()) || c.GID != uint32(os.Getgid()) || c.CPUs.Empty() ||
		!c.alive() {
		t.Errorf("%+v is not us", c)
	}
	groups, _ := os.Getgroups()
	for _, g := range groups {
		if !slices.Contains(c.Groups, uint32(g)) {
			t.Errorf("group %d is missing in %v", g, c.Groups)
		}
	}
	c.Start++
	if c.alive() {
		t.Error("a later process with our PID counts as the caller")
	}
}

// TestCallerThatWasKilled: a caller of whom only its entry in the process table is left, as behind scancel, is no fault
// of the agent.
func TestCallerThatWasKilled(t *testing.T) {
	if at := os.Getenv("GRANGE_TEST_CALL"); at != "" { // the caller
		if _, err := net.Dial("unix", at); err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, os.Stdin)
		return
	}
	path := filepath.Join(t.TempDir(), "s") // of this process alone: the other one is killed
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	caller := exec.Command(os.Args[0], "-test.run=^TestCallerThatWasKilled$")
	caller.Env = append(os.Environ(), "GRANGE_TEST_CALL="+path)
	if _, err := caller.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := caller.Start(); err != nil {
		t.Fatal(err)
	}
	defer caller.Wait()
	defer caller.Process.Kill()
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	start, err := procstat.Started(caller.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	c := &admission.Connection{UnixConn: conn, Start: start}
	if found, err := callerOf(c); err != nil || found.PID != caller.Process.Pid || found.Start != start {
		t.Errorf("%+v, %v", found, err)
	}
	caller.Process.Kill()
	for err == nil {
		_, err = procstat.Started(caller.Process.Pid)
	}
	if found, err := callerOf(c); !farm.IsCode(err, CodeHiddenCaller) {
		t.Errorf("%+v, %v", found, err)
	}
}
