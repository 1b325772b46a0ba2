package mounts

import "slices"

// kind is a kind of file system whose files others may lock, delay or lose.
type kind struct {
	name   string
	number int64    // of statfs(2); 0: that of FUSE
	types  []string // of mounts whose files are a server's
}

var kinds = []kind{
	{"NFS", 0x6969, []string{"nfs", "nfs4"}},
	{"CIFS", 0xff534d42, []string{"cifs"}},
	{"SMB", 0xfe534d42, []string{"smb3"}},
	{"SMB", 0x517b, nil}, // of kernels before 2.6.38
	{"9p", 0x01021997, []string{"9p"}},
	{"CephFS", 0x00c36400, []string{"ceph"}},
	{"Lustre", 0x0bd00bd0, []string{"lustre"}},
	{"GPFS", 0x47504653, []string{"gpfs"}},
	{"AFS", 0x5346414f, []string{"afs"}},
	{"OCFS2", 0x7461636f, nil}, // hosts share a disk
	{"GFS2", 0x01161970, nil},
	{"BeeGFS", 0x19830326, []string{"beegfs"}},
	{"virtiofs", 0x6a656a63, nil},
	{"FUSE", 0x65735546, []string{"fuse.ceph", "fuse.ceph-fuse", "fuse.cvmfs2", "fuse.glusterfs", "fuse.sshfs",
		"glusterfs"}},
}

// NotLocal returns the name of a kind by the number that statfs(2) has for it; "": it is of this host alone.
func NotLocal(number int64) string {
	for _, k := range kinds {
		if k.number == number&0xffffffff {
			return k.name
		}
	}
	return ""
}

// Network reports whether the files are a server's, as far as the type tells.
func (m Mount) Network() bool {
	return m.Type == "fuse" && m.Source == "cvmfs2" ||
		slices.ContainsFunc(kinds, func(k kind) bool { return slices.Contains(k.types, m.Type) })
}
