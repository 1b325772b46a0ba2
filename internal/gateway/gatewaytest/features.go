package gatewaytest

// feature is one promise to a job, or of a job to the host.
type feature struct {
	name  string
	means string // a phrase for the table
	must  bool   // no gateway may lack it: hosts rest on it

	readOnly bool // of the directory, on the host
	asRoot   bool // the caller is root on the host
	vms      int  // that see the directory at the same time; 0: one
	test     func(v *vm)
}

// inside has a feature's test run in the VM, as the job.
func inside(test func(v *vm)) func(v *vm) {
	return func(v *vm) { v.as(v.Caller, func() { test(v) }) }
}

// features are all, in the order of the table.
var features = []feature{
	{name: "rights", must: true, test: rights,
		means: "the caller's rights, groups included, and no more"},
	{name: "root-in-vm", must: true, test: rootInVM,
		means: "root in the VM is the caller on the host"},
	{name: "caller-root", must: true, asRoot: true, test: callerRoot,
		means: "of a job of root: no device nodes, no set-ID files"},
	{name: "links-outside", must: true, test: linksOutside,
		means: "no symbolic link leads out of the directory"},
	{name: "dotdot", must: true, test: dotDot,
		means: "`..` leads to the VM's own files"},
	{name: "kernel-files", must: true, test: kernelFiles,
		means: "no `/proc`, `/sys` or their like, mounted below"},
	{name: "devices", must: true, test: devices,
		means: "no device of the host is opened"},
	{name: "sockets", must: true, test: sockets,
		means: "no socket or pipe leads to a process of the host"},
	{name: "read-only", must: true, readOnly: true, test: readOnly,
		means: "a read-only directory refuses every change, whatever the VM mounts"},
	{name: "disconnect", must: true, test: disconnect,
		means: "when the host goes, every call ends, those under way too"},

	{name: "mounts-below", test: mountsBelow, means: "file systems mounted below the directory are seen"},
	{name: "files", test: inside(files), means: "open, create, exclusively too; mkdir, unlink, rmdir; their errors"},
	{name: "access", test: access, means: "access(2), chdir(2) agree with what an open is allowed"},
	{name: "exec", test: executes, means: "programs are run from it"},
	{name: "links", test: inside(links), means: "symbolic links, of up to 4,095 bytes"},
	{name: "hard-links", test: inside(hardLinks), means: "hard links"},
	{name: "rename", test: inside(renames), means: "rename: over, across directories, not into itself, not over a full one"},
	{name: "rename-flags", test: inside(renameFlags), means: "renameat2: exchange, no replace"},
	{name: "names", test: inside(names), means: "names of any bytes, of up to 255"},
	{name: "deep", test: inside(deep), means: "trees deeper than a path can be long"},
	{name: "many-entries", test: manyEntries, means: "10,000 entries in a directory, listed once each; deleted while listed"},
	{name: "pipes", test: inside(pipes), means: "pipes between processes of the VM"},
	{name: "modes", test: inside(modes), means: "chmod; sticky and set-group-ID directories"},
	{name: "set-id", test: inside(setIDFiles), means: "set-user-ID and set-group-ID files"},
	{name: "umask", test: inside(umask), means: "a file's mode as it was created, less the process's umask"},
	{name: "times", test: times, means: "timestamps: nanoseconds, before 1970, of links; touch by who may write"},
	{name: "xattrs", test: inside(xattrs), means: "extended attributes `user.*`"},
	{name: "acls", test: acls, means: "POSIX ACLs"},
	{name: "xattrs-privileged", asRoot: true, test: inside(xattrsPrivileged), means: "`security.*` and `trusted.*`, for root"},
	{name: "file-flags", test: inside(fileFlags), means: "lsattr"},
	{name: "truncate", test: inside(truncation), means: "truncation, by name, by descriptor, at open"},
	{name: "append", test: inside(appends), means: "O_APPEND from two processes of the VM"},
	{name: "append-shared", vms: 2, test: appendShared, means: "O_APPEND from two VMs"},
	{name: "unlinked", test: inside(unlinked), means: "an open file without a name: read, write, fstat, fchmod, times, xattrs"},
	{name: "replaced", test: replaced, means: "an open file that the host replaces by another stays what it was"},
	{name: "tmpfile-link", test: inside(tmpfileLink), means: "a file without a name (O_TMPFILE) gets one"},
	{name: "sparse", test: inside(sparse), means: "holes, and SEEK_HOLE, SEEK_DATA"},
	{name: "fallocate", test: inside(allocates), means: "fallocate: allocate, keep the size, zero, punch a hole"},
	{name: "big-files", test: inside(bigFiles), means: "files larger than 4 GiB"},
	{name: "copy", test: inside(copies), means: "copy_file_range, sendfile, readv, writev"},
	{name: "sync", test: inside(syncs), means: "fsync and fdatasync, of directories too; syncfs, statfs"},
	{name: "direct", test: inside(direct), means: "O_DIRECT"},
	{name: "mmap", test: mapped, means: "mmap, shared and private"},
	{name: "locks", test: inside(locks), means: "fcntl and flock locks between processes of the VM"},
	{name: "locks-shared", vms: 2, test: locksShared, means: "fcntl and flock locks between VMs, and with the host"},
	{name: "fresh", test: fresh, means: "what the host changes is seen, when a file is opened again"},
	{name: "fresh-at-once", test: freshAtOnce, means: "what the host changes is seen at once"},
	{name: "inotify", test: inotifies, means: "inotify of what the VM changes"},
	{name: "inotify-host", test: inotifyHost, means: "inotify of what the host changes"},
}
