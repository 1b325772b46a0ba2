package inside

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/gateway/confine"
	"github.com/grange-project/grange/internal/gateway/features"
	"github.com/grange-project/grange/internal/gateway/gatewaytest"
	"github.com/grange-project/grange/internal/gateway/sftp"
	"github.com/grange-project/grange/internal/guest"
)

const serveWord = "serve-sftp"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == serveWord {
		if err := confine.Run(os.Args[2:], map[farm.Gateway]confine.Gateway{farm.SFTP: sftp.Gateway}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestSFTP runs the contract on both halves of the gateway: sftp-server as the agent starts it, and sshfs as
// grange-guest does.
func TestSFTP(t *testing.T) {
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("this kernel has no FUSE: ", err)
	}
	if _, err := findSSHFS(); err != nil {
		t.Skip("this host has no sshfs")
	}
	if _, err := sftp.Find(); err != nil {
		t.Skip(err)
	}
	gatewaytest.Run(t, gatewaytest.Gateway{Gateway: features.Of(farm.SFTP), Serve: serveSFTP})
}

// serveSFTP has sftp-server serve a directory, and sshfs mount it.
func serveSFTP(t *testing.T, dir string, caller gatewaytest.Identity, readOnly bool) (string, func()) {
	pid, qemu := startSFTP(t, dir, caller, readOnly)
	top := filepath.Join(filepath.Dir(dir), "..", filepath.Base(t.TempDir()))
	target := filepath.Join(top, "bind")
	if err := os.MkdirAll(target, 0o755); err != nil {
		t.Fatal(err)
	}
	const port = "port"
	at := filepath.Join(t.TempDir(), "at")
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	g := &Guest{reaper: &reaper{started: map[int]chan ending{}}, sshfs: sshfsMounts{at: map[string]string{port: at}}}
	link, err := startSSHFS(g.reaper, at)
	if err != nil {
		t.Fatal(err)
	}
	go carry(qemu, link)
	go carry(link, qemu)
	if err := g.showPort(guest.Bind{Target: target, Port: port}); err != nil {
		t.Fatal(err)
	}
	end := func() { unix.Kill(pid, unix.SIGKILL) }
	t.Cleanup(func() {
		end()
		unix.Unmount(target, unix.MNT_DETACH)
		unix.Unmount(at, unix.MNT_DETACH)
	})
	return target, end
}

// startSFTP starts it as the agent does, and returns its process and QEMU's end.
func startSFTP(t *testing.T, dir string, caller gatewaytest.Identity, readOnly bool) (int, net.Conn) {
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	holder := exec.Command("sleep", "600") // the caller
	holder.Stdin = f
	holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Credential: &syscall.Credential{Uid: caller.UID, Gid: caller.GID, Groups: caller.Groups}}
	if err := errors.Join(holder.Start(), f.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { holder.Process.Kill(); holder.Wait() })
	d, err := confine.Clone(t.Context(), holder.Process.Pid, 0, caller.UID, readOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "socket"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	listener, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	words, err := os.Create(filepath.Join(t.TempDir(), "words"))
	if err != nil {
		t.Fatal(err)
	}
	defer words.Close()
	program, err := sftp.Find()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := confine.Start(t.Context(), confine.Server{Gateway: farm.SFTP, Program: program,
		Command: []string{"/proc/self/exe", serveWord}, Directory: d.File, ReadOnly: readOnly, Listener: listener,
		Words: words, UID: caller.UID, GID: caller.GID, Groups: caller.Groups, Files: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Kill(pid, unix.SIGKILL) })
	qemu, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { qemu.Close() })
	return pid, qemu
}

func TestSSHFSOptions(t *testing.T) {
	const old = "allow_other,idmap=none,dir_cache=no,sshfs_sync,slave"
	if got := sshfsOptions("-o slave  communicate over stdin"); got != old {
		t.Error(got)
	}
	const now = "allow_other,idmap=none,dir_cache=no,sshfs_sync,passive,no_contain_symlinks"
	if got := sshfsOptions("-o passive\n -o no_contain_symlinks"); got != now {
		t.Error(got)
	}
}
