package features

import "github.com/grange-project/grange/internal/farm"

var fuse = Gateway{Name: farm.FUSE, Lacks: map[string]Lack{
	"set-id": {
		Why:       "the bits are dropped, for others could run the files on the host; `suid` of a bind lets them be",
		WithSetID: true,
		Seen:      "mode 6755 has 755",
	},
	"umask": {
		Why:  "the umask of `grange exec` on the host counts too",
		Seen: "with umask 0, modes are 644 and 755",
	},
	"xattrs-privileged": {
		Why:       "refused, unless the bind has `suid`",
		WithSetID: true,
		Seen:      "operation not permitted",
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
}}
