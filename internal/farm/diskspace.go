package farm

// DiskSpace is what a host has for the disks of VMs.
type DiskSpace struct {
	Total Bytes // of the file system
	Pool  Bytes // of it, what disks have and may have: all but other files
	Free  Bytes // of that, neither taken nor promised
	Short Bytes // by which the promises are more than there is; 0: they hold
	Kept  Bytes // of Short, what the host is to keep for itself, and has not: no VM was promised that
}
