package inside

import (
	"bytes"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
)

// look reports to the host what this kernel sees of the machine, for the host to compare with what it planned. Nothing
// waits for that: it is done while the host hands the first job over.
func (g *Guest) look(fsys fs.FS) {
	view := readView(fsys)
	close(g.looked)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.view = &view
	g.write(guest.State{View: g.view})
}

// readView reads few files, whatever the number of CPUs: one for each core, socket and node. What cannot be read stays
// empty.
func readView(fsys fs.FS) farm.GuestView {
	const cpus, nodes = "sys/devices/system/cpu/", "sys/devices/system/node/"
	online := readSet(fsys, cpus+"online")
	v := farm.GuestView{
		Sockets: groups(fsys, online, cpus, "/topology/core_siblings_list"),
		Cores:   groups(fsys, online, cpus, "/topology/thread_siblings_list"),
		Clock:   readText(fsys, "sys/devices/system/clocksource/clocksource0/current_clocksource"),
		Flags:   readFlags(fsys),
	}
	for id := range readSet(fsys, nodes+"online").All() {
		dir := nodes + "node" + strconv.Itoa(id)
		node := farm.GuestNode{CPUs: readSet(fsys, dir+"/cpulist"), Memory: nodeMemory(fsys, dir+"/meminfo")}
		v.Nodes = append(v.Nodes, node)
	}
	entries, _ := fs.ReadDir(fsys, "sys/kernel/mm/hugepages")
	for _, e := range entries {
		text := strings.TrimSuffix(strings.TrimPrefix(e.Name(), "hugepages-"), "kB")
		if kib, err := strconv.ParseUint(text, 10, 40); err == nil {
			v.Pages = append(v.Pages, farm.Bytes(kib)*farm.KiB)
		}
	}
	slices.Sort(v.Pages)
	return v
}

// groups are the sets that a file of each CPU names, each once; nil where a CPU names none that it is in.
func groups(fsys fs.FS, online farm.CPUSet, dir, file string) (out []farm.CPUSet) {
	var known farm.CPUSet
	for cpu := range online.All() {
		if known.Has(cpu) {
			continue
		}
		set := readSet(fsys, dir+"cpu"+strconv.Itoa(cpu)+file)
		if !set.Has(cpu) {
			return nil
		}
		known, out = known.Or(set), append(out, set)
	}
	return out
}

func readText(fsys fs.FS, name string) string {
	text, _ := fs.ReadFile(fsys, name)
	return string(bytes.TrimSpace(text))
}

func readSet(fsys fs.FS, name string) farm.CPUSet {
	set, _ := farm.ParseCPUSet(readText(fsys, name))
	return set
}

// nodeMemory reads "Node 0 MemTotal:  1004260 kB".
func nodeMemory(fsys fs.FS, name string) farm.Bytes {
	_, after, _ := strings.Cut(readText(fsys, name), "MemTotal:")
	fields := strings.Fields(after)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.ParseUint(fields[0], 10, 50)
	return farm.Bytes(kib) * farm.KiB
}

// readFlags reads the first CPU's flags. The whole file has as many copies of them as there are CPUs.
func readFlags(fsys fs.FS) []string {
	f, err := fsys.Open("proc/cpuinfo")
	if err != nil {
		return nil
	}
	defer f.Close()
	text := make([]byte, 0, 16<<10)
	for len(text) < cap(text) {
		n, err := f.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		if at := bytes.Index(text, []byte("\nflags")); at >= 0 {
			if line, _, whole := bytes.Cut(text[at+1:], []byte("\n")); whole {
				_, flags, _ := strings.Cut(string(line), ":")
				return strings.Fields(flags)
			}
		}
		if err != nil {
			break
		}
	}
	return nil
}
