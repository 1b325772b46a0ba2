package hosttree

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
