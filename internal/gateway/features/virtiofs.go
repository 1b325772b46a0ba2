package features

import "github.com/grange-project/grange/internal/farm"

var virtiofs = Gateway{Name: farm.Virtiofs, RefusesRoot: "binds of root are not served", Lacks: map[string]Lack{
	"mounts-below": {
		Why:  "a directory with mounts below is refused, and later ones are not seen",
		Seen: "open m/f: no such file",
	},
	"access": {
		Why:  "root of the VM is told yes by its own kernel, and is refused at the open",
		Seen: "^user 0, |^chdir into a closed one: <nil>",
	},
	"modes": {
		Why:  "set-group-ID bits are refused, also of directories",
		Seen: "chmod: operation not permitted",
	},
	"set-id": {
		Why:  "refused, for others could run the files on the host",
		Seen: "chmod: operation not permitted",
	},
	"acls": {
		Why:  "refused where they name users and groups other than the caller's",
		Seen: "set: (invalid argument|operation not supported)",
	},
	"xattrs-privileged": {
		Why:  "binds of root are refused",
		Seen: "binds of root are not served",
	},
	"file-flags": {
		Why:  "no ioctl crosses",
		Seen: "inappropriate ioctl",
	},
	"tmpfile-link": {
		Why:  "virtiofsd makes no files without names",
		Seen: "O_TMPFILE: operation not supported",
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
