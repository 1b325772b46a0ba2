// Package sftp brings directories of the host into VMs by OpenSSH's sftp-server and a port of the VM, without
// encryption: the way never leaves the host. Package confine keeps the server the job's user, and the directory is all
// that it has of the host before it reads the guest's first byte.
package sftp

import (
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/gateway/confine"
)

// usual is where distributions have sftp-server.
var usual = []string{"usr/lib/openssh/sftp-server", "usr/libexec/openssh/sftp-server", "usr/libexec/sftp-server",
	"usr/lib/ssh/sftp-server"}

// Find returns the path of this host's sftp-server. Error: farm.CodeNoGateway.
func Find() (string, error) { return find(os.DirFS("/")) }

// find is Find in a tree of files.
func find(files fs.FS) (string, error) {
	for _, path := range usual {
		if info, err := fs.Stat(files, path); err == nil && info.Mode().IsRegular() {
			return "/" + path, nil
		}
	}
	return "", confine.Refused("install sftp-server (Debian has it in openssh-sftp-server); or "+confine.HintFUSE,
		"this host has no sftp-server")
}

// Gateway starts sftp-server.
var Gateway = confine.Gateway{Launch: launch, Tend: join}

// requests are what a guest may ask for: nothing that looks users or their homes up.
const requests = "open,close,read,write,lstat,fstat,setstat,fsetstat,opendir,readdir,remove,mkdir,rmdir,realpath," +
	"stat,rename,readlink,symlink,posix-rename,statvfs,fstatvfs,hardlink,fsync,lsetstat,limits"

func arguments(readOnly bool) []string {
	args := []string{"-e", "-l", "ERROR", "-u", "0", "-p", requests} // the guest's kernel has its programs' umask
	if readOnly {
		args = append(args, "-R")
	}
	return args
}

// launch starts sftp-server, which knows no way to make a directory its root, nor could it be started there: it is
// loaded from the host's files. So it has said its first word, and is loaded, before its root is changed; the guest's
// requests come after that.
func launch(in confine.Inside) (*os.File, error) {
	if err := accounts(in.Caller); err != nil {
		return nil, err
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), "link"), os.NewFile(uintptr(ends[1]), "server")
	if err := confine.DropAmbient(); err != nil {
		return nil, err
	}
	_, err = os.StartProcess(in.Program, append([]string{in.Program}, arguments(in.ReadOnly)...), &os.ProcAttr{Dir: "/",
		Env: confine.Environment, Files: []*os.File{theirs, theirs, in.Say}})
	theirs.Close()
	if err != nil {
		return nil, err
	}
	if err := greet(ours); err != nil {
		return nil, fmt.Errorf("sftp-server: %w", err)
	}
	return ours, confine.GiveDirectory()
}

// accounts has the host's accounts be the caller's alone: sftp-server ends where it finds none for its user, and a name
// service that does not answer would keep it waiting.
func accounts(c confine.Caller) error {
	for path, text := range map[string]string{
		"/etc/passwd":        fmt.Sprintf("job:x:%d:%d::/:/bin/false\n", c.UID, c.GID),
		"/etc/nsswitch.conf": "passwd: files\ngroup: files\n",
	} {
		if _, err := os.Stat(path); err != nil {
			continue // a host without the second knows files alone
		}
		own, err := os.CreateTemp("/tmp", "")
		if err != nil {
			return err
		}
		if _, err := own.WriteString(text); err != nil {
			return err
		}
		if err := unix.Mount(own.Name(), path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount over %s: %w", path, err)
		}
		own.Close()
	}
	return nil
}
