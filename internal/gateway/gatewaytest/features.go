package gatewaytest

import "github.com/grange-project/grange/internal/gateway/features"

// feature is one with its test.
type feature struct {
	features.Feature
	how
}

// how a feature is tried.
type how struct {
	readOnly bool // the directory, on the host
	asRoot   bool // the caller is root on the host
	beside   bool // it looks at what is beside the directory
	oneHost  bool // it is tried where host and VM are one machine alone
	vms      int  // that see the directory at the same time; 0: one
	test     func(v *vm)
}

// inside has a feature's test be one step in the VM, as the job.
func inside(test func(v *vm)) func(v *vm) {
	return func(v *vm) { v.as(v.Caller, func() { test(v) }) }
}

var tests = map[string]how{
	"rights":            {test: rights},
	"root-in-vm":        {test: rootInVM},
	"caller-root":       {asRoot: true, test: callerRoot},
	"links-outside":     {beside: true, test: linksOutside},
	"dotdot":            {beside: true, test: dotDot},
	"forged-handles":    {beside: true, test: forgedHandles},
	"kernel-files":      {test: kernelFiles},
	"devices":           {test: devices},
	"sockets":           {test: sockets},
	"read-only":         {readOnly: true, test: readOnly},
	"disconnect":        {oneHost: true, test: disconnect},
	"mounts-below":      {test: mountsBelow},
	"files":             {test: files},
	"access":            {test: access},
	"exec":              {test: executes},
	"links":             {test: inside(links)},
	"hard-links":        {test: inside(hardLinks)},
	"rename":            {test: inside(renames)},
	"rename-flags":      {test: inside(renameFlags)},
	"names":             {test: inside(names)},
	"deep":              {test: inside(deep)},
	"many-entries":      {test: manyEntries},
	"pipes":             {test: inside(pipes)},
	"modes":             {test: inside(modes)},
	"set-id":            {test: inside(setIDFiles)},
	"umask":             {test: inside(umask)},
	"times":             {test: times},
	"xattrs":            {test: inside(xattrs)},
	"acls":              {test: acls},
	"xattrs-privileged": {asRoot: true, test: inside(xattrsPrivileged)},
	"file-flags":        {test: inside(fileFlags)},
	"truncate":          {test: inside(truncation)},
	"append":            {test: appends},
	"append-shared":     {vms: 2, test: appendShared},
	"unlinked":          {test: inside(unlinked)},
	"replaced":          {test: replaced},
	"tmpfile-link":      {test: inside(tmpfileLink)},
	"sparse":            {test: inside(sparse)},
	"fallocate":         {test: inside(allocates)},
	"big-files":         {test: inside(bigFiles)},
	"copy":              {test: inside(copies)},
	"sync":              {test: inside(syncs)},
	"direct":            {test: inside(direct)},
	"mmap":              {test: mapped},
	"locks":             {test: inside(locks)},
	"locks-shared":      {vms: 2, test: locksShared},
	"fresh":             {test: fresh},
	"fresh-at-once":     {test: freshAtOnce},
	"inotify":           {test: inotifies},
	"inotify-host":      {test: inotifyHost},
}

// all are the features with their tests.
func all() (list []feature) {
	for _, f := range features.All {
		list = append(list, feature{f, tests[f.Name]})
	}
	return list
}
