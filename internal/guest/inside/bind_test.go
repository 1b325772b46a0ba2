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

	"github.com/grange-project/grange/internal/gateway"
	"github.com/grange-project/grange/internal/gateway/gatewaytest"
	"github.com/grange-project/grange/internal/guest"
)

// lacks are what this gateway does not keep.
var lacks = map[string]gatewaytest.Lack{
	"set-id": {
		Why:  "the bits are dropped, for others could run the files on the host; `suid` of a bind lets them be",
		Seen: "mode 6755 has 755",
	},
	"umask": {
		Why:  "the umask of `grange exec` on the host counts too",
		Seen: "with umask 0, modes are 644 and 755",
	},
	"xattrs-privileged": {
		Why:  "refused, unless the bind has `suid`",
		Seen: "operation not permitted",
	},
	"file-flags": {
		Why:  "no ioctl crosses: many have the kernel write into the process that answers",
		Seen: "inappropriate ioctl",
	},
	"append-shared": {
		Why:  "each VM appends where it last knew the end, as with NFS, and overwrites what others appended",
		Seen: "lines are lost",
	},
	"tmpfile-link": {
		Why:  "a file is found by its names, and this one has none",
		Seen: "linkat: invalid cross-device link|O_TMPFILE: operation not supported", // the latter before Linux 6.2
	},
	"locks-shared": {
		Why:  "each VM's kernel keeps its locks to itself",
		Seen: "both have the lock",
	},
	"fresh-at-once": {
		Why:  "a VM may believe for one second what it was told",
		Seen: "the content of before is read",
	},
	"inotify-host": {
		Why:  "a VM is told of no change that it has not made",
		Seen: "no event of a new file",
	},
}

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
	gatewaytest.Run(t, gatewaytest.Gateway{Name: "fuse", Serve: serve, Lacks: lacks})
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
