package farm

// FileSystem is a network file system that the site declares.
type FileSystem struct {
	Name   string
	Match  FileSystemMatch
	Budget int    // clients that it is made for; 0: none is set
	Note   string // for people
}

// FileSystemMatch says which mounts are of it: all that is set must be so, and a "*" in it stands for any text.
type FileSystemMatch struct{ Source, Type, MountPoint string }

// HostFileSystem is a network file system that a host has mounted, by what its agent reports.
type HostFileSystem struct {
	Source, Type, MountPoint string
	VMs                      int      // of jobs, that have directories of it
	Drains                   []string // by name, that the host keeps
}
