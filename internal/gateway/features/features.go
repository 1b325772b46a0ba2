// Package features lists what a program may expect of a directory of the host in a VM, and what of that each gateway
// does not keep. People read it, a bind may demand it, and the contract (gatewaytest) holds the gateways to it.
package features

import (
	"syscall"

	"github.com/grange-project/grange/internal/farm"
)

// Feature is one promise to a job, or of a job to the host.
type Feature struct {
	Name  string
	Means string // a phrase for tables
	Must  bool   // no gateway may lack it: hosts rest on it
}

// All are in the order of tables.
var All = []Feature{
	{"rights", "the caller's rights, groups included, and no more", true},
	{"root-in-vm", "root in the VM is the caller on the host", true},
	{"caller-root", "of a job of root: no device nodes, no set-ID files", true},
	{"links-outside", "no symbolic link leads out of the directory", true},
	{"dotdot", "`..` leads to the VM's own files", true},
	{"forged-handles", "no file handle that root in the VM makes up leads out of the directory", true},
	{"kernel-files", "no `/proc`, `/sys` or their like, mounted below", true},
	{"devices", "no device of the host is opened", true},
	{"sockets", "no socket leads to a process of the host, nor a pipe that the VM's kernel opens", true},
	{"read-only", "a read-only directory refuses every change, whatever the VM mounts", true},
	{"disconnect", "when the host goes, every call ends, those under way too", true},

	{"mounts-below", "file systems mounted below the directory are seen", false},
	{"files", "open, create, exclusively too; mkdir, unlink, rmdir; their errors", false},
	{"access", "access(2), chdir(2) agree with what an open is allowed", false},
	{"exec", "programs are run from it", false},
	{"links", "symbolic links, of up to 4,095 bytes", false},
	{"hard-links", "hard links", false},
	{"rename", "rename: over, across directories, not into itself, not over a full one", false},
	{"rename-flags", "renameat2: exchange, no replace", false},
	{"names", "names of any bytes, of up to 255", false},
	{"deep", "trees deeper than a path can be long", false},
	{"many-entries", "10,000 entries in a directory, listed once each; deleted while listed", false},
	{"pipes", "pipes between processes of the VM", false},
	{"modes", "chmod; sticky and set-group-ID directories", false},
	{"set-id", "set-user-ID and set-group-ID files", false},
	{"umask", "a file's mode as it was created, less the process's umask", false},
	{"times", "timestamps: nanoseconds, before 1970, of links; touch by who may write", false},
	{"xattrs", "extended attributes `user.*`", false},
	{"acls", "POSIX ACLs", false},
	{"xattrs-privileged", "`security.*` and `trusted.*`, for root", false},
	{"file-flags", "lsattr", false},
	{"truncate", "truncation, by name, by descriptor, at open", false},
	{"append", "O_APPEND from two processes of the VM", false},
	{"append-shared", "O_APPEND from two VMs", false},
	{"unlinked", "an open file without a name: read, write, fstat, fchmod, times, xattrs", false},
	{"replaced", "an open file that the host replaces by another stays what it was", false},
	{"tmpfile-link", "a file without a name (O_TMPFILE) gets one", false},
	{"sparse", "holes, and SEEK_HOLE, SEEK_DATA", false},
	{"fallocate", "fallocate: allocate, keep the size, zero, punch a hole", false},
	{"big-files", "files larger than 4 GiB", false},
	{"copy", "copy_file_range, sendfile, readv, writev", false},
	{"sync", "fsync and fdatasync, of directories too; syncfs, statfs", false},
	{"direct", "O_DIRECT", false},
	{"mmap", "mmap, shared and private", false},
	{"locks", "fcntl and flock locks between processes of the VM", false},
	{"locks-shared", "fcntl and flock locks between VMs, and with the host", false},
	{"fresh", "what the host changes is seen, when a file is opened again", false},
	{"fresh-at-once", "what the host changes is seen at once", false},
	{"inotify", "inotify of what the VM changes", false},
	{"inotify-host", "inotify of what the host changes", false},
}

// Lack is a feature that a gateway does not keep.
type Lack struct {
	Why string // a phrase for tables
	// WithSetID is set where a bind with `suid` has it all the same.
	WithSetID bool
	Seen      string // expression for what the contract then meets: what is declared as lacking differs as it says
}

// Gateway is what one keeps.
type Gateway struct {
	Name  farm.Gateway
	Lacks map[string]Lack // by the features' names
	// RefusesRoot is an expression for what is said of directories that root binds; "": it serves them.
	RefusesRoot string
	// Instead has the errors that its protocol has no word for, with what it says in their place.
	Instead map[syscall.Errno][]syscall.Errno
}

// Gateways are all, in the order of tables.
var Gateways = []Gateway{fuse, virtiofs, sftp}

// Of is what a gateway keeps.
func Of(name farm.Gateway) Gateway {
	for _, g := range Gateways {
		if g.Name == name {
			return g
		}
	}
	return Gateway{Name: name}
}
