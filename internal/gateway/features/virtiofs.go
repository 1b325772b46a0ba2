package features

import "github.com/grange-project/grange/internal/farm"

var virtiofs = Gateway{Name: farm.Virtiofs, RefusesRoot: "binds of root are not served", Lacks: map[string]Lack{
	"mounts-below": {
		Why:  "a directory with mounts below is refused, and later ones are not seen",
		Seen: "open m/f: no such file",
	},
	"set-id": {
		Why:  "refused, for others could run the files on the host",
		Seen: "chmod: operation not permitted",
	},
	"acls": {
		Why:  "not offered to the VM",
		Seen: "set: operation not supported",
	},
	"xattrs-privileged": {
		Why:  "binds of root are refused",
		Seen: "binds of root are not served",
	},
	"file-flags": {
		Why:  "no ioctl crosses",
		Seen: "inappropriate ioctl",
	},
	"append-shared": {
		Why:  "each VM appends where it last knew the end, as with NFS, and overwrites what others appended",
		Seen: "lines are lost",
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
