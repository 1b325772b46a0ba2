package hosttree

import (
	"strconv"
	"strings"
)

// Files that no kernel has, in every Tree of a live host and in its recordings: what only a program or a system call
// can tell.
const (
	VersionsPath    = "grange/versions.json"    // Versions
	FileSystemsPath = "grange/filesystems.json" // a list of FileSystem
)

// Versions are of programs; empty where one is not installed or does not answer.
type Versions struct {
	QEMU    string `json:"qemu,omitempty"`
	Libvirt string `json:"libvirt,omitempty"`
}

// FileSystem is how large a mounted file system is, in bytes. Free is what users other than root may still write.
type FileSystem struct {
	Path string `json:"path"`
	Size uint64 `json:"size"`
	Free uint64 `json:"free"`
}

// HeaderBytes is how much of a VM's qcow2 disk is looked at, and recorded: the header without extensions of version 3.
const HeaderBytes = 104

// Unescape undoes \040 and its like, by which the kernel writes blanks in paths.
func Unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
