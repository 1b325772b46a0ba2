package inside

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/gateway"
	"github.com/grange-project/grange/internal/gateway/features"
	"github.com/grange-project/grange/internal/gateway/gatewaytest"
	"github.com/grange-project/grange/internal/guest"
)

// TestBind runs the contract on both halves of the gateway: the mount of grange-guest by this host's kernel, and a
// process of the caller that answers, as `grange exec` does.
func TestBind(t *testing.T) {
	if bind := os.Getenv(envServe); bind != "" {
		serveBind(t, bind)
		return
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("this kernel has no FUSE: ", err)
	}
	gatewaytest.Run(t, gatewaytest.Gateway{Gateway: features.Of(farm.FUSE), Serve: serve})
}

const (
	envServe = "GRANGE_TEST_SERVE" // whether it is read-only, and a directory
	bindJob  = "a job"
)

// serve connects a process of the caller with a mount of ours.
func serve(t *testing.T, dir string, caller gatewaytest.Identity, readOnly bool) (string, func()) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs, ours := os.NewFile(uintptr(ends[0]), "host"), os.NewFile(uintptr(ends[1]), "guest")
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+strings.Split(t.Name(), "/")[0]+"$")
	cmd.Dir, cmd.ExtraFiles = "/", []*os.File{theirs}
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%v %s", envServe, readOnly, dir))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: caller.UID, Gid: caller.GID,
		Groups: caller.Groups}}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	port, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	ours.Close()
	job := &task{job: &guest.Job{}, session: guest.NewSession(bindJob)}
	job.served.Go(func() { job.session.AttachGuest(port) })
	top := filepath.Join(filepath.Dir(dir), "..", filepath.Base(t.TempDir()))
	target := filepath.Join(top, "bind")
	b, err := job.mountBind(guest.Bind{Target: target}, guest.StreamBind)
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	ended := false
	end := func() { // as task.finish does
		if ended {
			return
		}
		ended = true
		job.session.Close()
		b.abort()
		port.Close()
		job.served.Wait()
		cmd.Wait()
	}
	t.Cleanup(func() {
		end()
		unix.Unmount(target, unix.MNT_DETACH)
		if t.Failed() {
			t.Log(out.String())
		}
	})
	return target, end
}

// serveBind is the process on the host, as the caller.
func serveBind(t *testing.T, bind string) {
	unix.Umask(0o022) // whatever ours is
	readOnly, dir, _ := strings.Cut(bind, " ")
	d, err := gateway.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	port, err := net.FileConn(os.NewFile(3, "port"))
	if err != nil {
		t.Fatal(err)
	}
	session := guest.NewSession(bindJob)
	go func() {
		session.AttachHost(port)
		session.Close()
	}()
	d.Serve(session.Stream(guest.StreamBind), gateway.Options{ReadOnly: readOnly == "true"})
}
