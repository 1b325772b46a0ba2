package features

import (
	"syscall"

	"github.com/grange-project/grange/internal/farm"
)

var sftp = Gateway{Name: farm.SFTP, RefusesRoot: "binds of root are not served",
	Instead: map[syscall.Errno][]syscall.Errno{
		syscall.EROFS:  {syscall.EACCES, syscall.EPERM, syscall.EINVAL, syscall.ENOTSUP},
		syscall.EACCES: {syscall.ENOTSUP}, // of attributes, which nobody has
	},
	Lacks: map[string]Lack{
		"mounts-below": {Why: "a directory with file systems mounted below is refused; what is mounted later is not seen",
			Seen: "no such file"},
		"access": {Why: "access(2) and chdir(2) allow what an open then refuses: the guest does not ask " +
			"for rights, and sftp-server knows no such request",
			Seen: `access\(\d\) is <nil>|closed one`},
		"hard-links": {Why: "each name is a file of its own: sftp knows no inodes. On the host they are links",
			Seen: "1 links|f holds"},
		"rename": {Why: "over a full directory: EPERM, not ENOTEMPTY; the rest is kept",
			Seen: "over a full directory: operation not permitted"},
		"rename-flags": {Why: "sftp has no such request",
			Seen: "invalid argument|no such file|b holds"},
		"names": {Why: "as usual, but a name of 256 bytes is told as EBADMSG, not ENAMETOOLONG",
			Seen: "bad message"},
		"deep": {Why: "requests carry whole paths, of up to 4,095 bytes",
			Seen: "bad message"},
		"many-entries": {Why: "a listing is read once: after rewinding an open directory nothing is listed",
			Seen: "0 entries|not empty"},
		"pipes": {Why: "sftp has no such request: mkfifo is refused",
			Seen: "mkfifo: operation not permitted"},
		"modes": {Why: "set-group-ID bits of directories are refused; the rest is kept",
			Seen: "chmod: permission denied"},
		"set-id": {Why: "refused, for others could run the files on the host",
			Seen: "chmod: permission denied"},
		"times": {Why: "in seconds, from 1970 on; those of links are refused",
			Seen: "utimensat: no such file|1000000000 0 0"},
		"xattrs": {Why: "sftp has no such requests",
			Seen: "operation not supported"},
		"acls": {Why: "sftp has no such requests",
			Seen: "operation not supported"},
		"file-flags": {Why: "sftp has no such requests",
			Seen: "inappropriate ioctl"},
		"unlinked": {Why: "read, write, fstat, fchmod and times are kept, attributes not",
			Seen: "fsetxattr: operation not supported"},
		"replaced": {Why: "the open file is read and written, but its size and mode are shown of the new " +
			"one, and set there",
			Seen: "the open file has|the new file holds"},
		"tmpfile-link": {Why: "O_TMPFILE is refused",
			Seen: "O_TMPFILE: operation not supported"},
		"sparse": {Why: "holes stay on the host, but the guest is told of none",
			Seen: "blocks|seek|data behind"},
		"fallocate": {Why: "sftp has no such request",
			Seen: "operation not supported|bytes in|it has 0 bytes|content|blocks"},
		"locks-shared": {Why: "each VM's kernel keeps its locks to itself",
			Seen: "both have the lock"},
		"fresh-at-once": {Why: "a VM may believe for one second what it was told",
			Seen: "the content of before is read"},
		"inotify-host": {Why: "a VM is told of no change that it has not made",
			Seen: "no event of a new file"},
		"xattrs-privileged": {Why: "binds of root are refused",
			Seen: "binds of root are not served"},
	}}
