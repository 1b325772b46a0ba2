package hostfacts

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hosttree"
)

// Recording is what Record made.
type Recording struct {
	Files  int
	Bytes  int64    // of the files, before tar and compression
	Unread []string // what was closed to the caller, and so is missing
}

// Record writes a tar archive from which Read and ReadMachines give what they give for this host. It holds the files
// that they read and no others, without secrets: see clean. With anonymous, names of the host, of VMs and of their
// disks are made up, the same each time.
func Record(fsys fs.FS, live, anonymous bool, w io.Writer, now time.Time) (Recording, error) {
	trace := hosttree.NewTrace(fsys)
	h, err := Read(trace)
	if err != nil {
		return Recording{}, err
	}
	machines, err := ReadMachines(trace, h.Domains, live)
	if err != nil {
		return Recording{}, err
	}
	h.Domains = machines.Domains
	done := Recording{Unread: append(slices.Clone(h.Unread), machines.Unread...)}
	for _, p := range machines.Unseen {
		done.Unread = append(done.Unread, fmt.Sprintf("VM %s: it runs, and its process is not to be seen", p.Name))
	}
	entries := cleanAll(trace.Entries(), slices.Concat(machines.Processes, machines.Unseen))
	if anonymous {
		entries = anonymize(entries, h)
	}
	for _, e := range entries {
		done.Files++
		done.Bytes += int64(len(e.Data))
	}
	return done, hosttree.WriteTar(w, entries, now)
}

// cleanAll takes out what nobody else must know, and puts a libvirt's files that only its processes see where others
// are.
func cleanAll(entries []hosttree.Recorded, procs []farm.Process) []hosttree.Recorded {
	qemu := map[string]bool{}
	for _, p := range procs {
		qemu["proc/"+strconv.Itoa(p.PID)] = true
	}
	var out []hosttree.Recorded
	for _, e := range entries {
		if i := strings.Index(e.Path, "/root/run/libvirt/qemu/"); i >= 0 && strings.HasPrefix(e.Path, "proc/") {
			e.Path = e.Path[i+len("/root/"):]
		}
		if c, ok := clean(e, qemu); ok {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b hosttree.Recorded) int { return strings.Compare(a.Path, b.Path) })
	return slices.CompactFunc(out, func(a, b hosttree.Recorded) bool { return a.Path == b.Path })
}

// clean takes secrets out of one file, or leaves the file out. Programs other than QEMU keep their command lines for
// themselves, and their names unless they matter to VMs.
func clean(e hosttree.Recorded, qemu map[string]bool) (hosttree.Recorded, bool) {
	dir, name := path.Split(e.Path)
	switch dir = strings.TrimSuffix(dir, "/"); {
	case isPIDDir(dir) && name == "cmdline":
		e.Data = cleanCommand(e.Data)
		return e, qemu[dir]
	case isPIDDir(dir) && name == "comm":
		return e, qemu[dir] || strings.HasPrefix(string(e.Data), "qemu-") ||
			isWatched(strings.TrimSpace(string(e.Data)))
	case strings.HasSuffix(name, ".xml") && slices.Contains(domainDirs, dir):
		data, err := cleanDomain(e.Data)
		e.Data = data
		return e, err == nil // XML that cannot be read is of no use, and cannot be cleaned
	case isSysctl(e.Path):
		e.Data = cleanSysctl(e.Data)
	case e.Path == agentPath:
		e.Data = cleanAgent(e.Data)
	case e.Path == "proc/cmdline" || strings.HasPrefix(e.Path, "etc/") || strings.HasPrefix(e.Path, "boot/"):
		e.Data = settingSecret.ReplaceAll(e.Data, []byte("${1}="+removed))
	}
	return e, true
}

func isPIDDir(dir string) bool {
	pid, ok := strings.CutPrefix(dir, "proc/")
	return ok && pid != "" && strings.Trim(pid, "0123456789") == ""
}

func isWatched(comm string) bool {
	for name := range watched {
		if comm == name[:min(len(name), maxComm)] {
			return true
		}
	}
	return false
}
