package hostfacts

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hosttree"
	"github.com/grange-project/grange/internal/procstat"
)

// Bounds on what is read of a process: beyond them a tree is broken or hostile.
const (
	maxCmdline  = 1 << 20
	maxStatus   = 1 << 16
	maxThreads  = 1 << 16
	maxMappings = 1 << 20
	maxMapping  = 1 << 16 // bytes of a line of numa_maps; a path has at most 4096, times four where it is escaped
	maxNode     = 1023    // Linux's MAX_NUMNODES is 1024
)

// ourPrefix begins the name of every VM of every agent.
const ourPrefix = "grange-"

// processes finds the QEMU processes of a host: ours, libvirt's, and those that somebody started by hand. One that ends
// while it is read is left out. Memory is not known where we may not look at it, which takes root. bare are those that
// have a command line and nothing else: they have ended, or their recording is not whole.
func processes(fsys fs.FS) (found, bare []farm.Process, err error) {
	entries, err := fs.ReadDir(fsys, "proc")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil // a recording of the hardware alone
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list processes: %w", err)
	}
	groups := cgroups{fsys: fsys, known: map[string]farm.CPUSet{}}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid <= 0 {
			continue
		}
		p, err := readProcess(fsys, groups, pid)
		switch {
		case vanished(err) && p.PID != 0:
			bare = append(bare, p)
		case vanished(err), errors.Is(err, fs.ErrPermission): // hidden by hidepid; see ReadMachines
		case err != nil:
			return nil, nil, fmt.Errorf("read process %d: %w", pid, err)
		case p.PID != 0:
			found = append(found, p)
		}
	}
	byPID := func(a, b farm.Process) int { return a.PID - b.PID }
	slices.SortFunc(found, byPID)
	slices.SortFunc(bare, byPID)
	return found, bare, nil
}

// vanished reports whether an error is of a process or thread that has ended.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// readProcess reads one process; its PID is 0 when it runs no VM. With an error it has what the command line says.
func readProcess(fsys fs.FS, groups cgroups, pid int) (farm.Process, error) {
	dir := path.Join("proc", strconv.Itoa(pid))
	cmdline, err := readSome(fsys, path.Join(dir, "cmdline"), maxCmdline)
	if err != nil {
		return farm.Process{}, err
	}
	p, ok := parseCommand(cmdline)
	if !ok {
		return farm.Process{}, nil
	}
	p.PID, p.Ours = pid, strings.HasPrefix(p.Name, ourPrefix)
	threads, err := Threads(fsys, pid)
	if err != nil {
		return p, err
	}
	memory, err := NodeMemory(fsys, pid)
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return p, err
	}
	p.Threads, p.Memory = threads, memory
	p.Cpuset = groups.ofMachine(path.Join(dir, "cgroup"))
	for i, t := range p.Threads {
		task := path.Join(dir, "task", strconv.Itoa(t.ID))
		p.Threads[i].Cpuset = groups.of(path.Join(task, "cgroup"))
		p.Threads[i].LastCPU = lastCPU(fsys, path.Join(task, "stat"))
	}
	return p, nil
}

// qemuTools are programs of QEMU that run no VM and have options like those that do.
var qemuTools = []string{"qemu-img", "qemu-io", "qemu-nbd", "qemu-ga", "qemu-storage-daemon", "qemu-pr-helper",
	"qemu-bridge-helper"}

// parseCommand reads the name, UUID and vCPUs of the VM that a command line starts; ok is false when it starts none:
// other programs, and QEMU's tools, which have no machine.
func parseCommand(cmdline []byte) (p farm.Process, ok bool) {
	args := arguments(cmdline)
	if base := path.Base(args[0]); !strings.Contains(base, "qemu") || slices.Contains(qemuTools, base) {
		return p, false
	}
	for i := 1; i < len(args); i++ {
		value := ""
		if i+1 < len(args) {
			value = args[i+1]
		}
		switch strings.Replace(args[i], "--", "-", 1) { // QEMU takes both
		case "-name":
			p.Name, p.Named, ok = guestName(value), strings.Contains(value+",", ",debug-threads=on,"), true
		case "-uuid":
			p.UUID, ok = strings.ToLower(value), true
		case "-smp":
			p.CPUs, ok = countOf(value), true
		case "-machine", "-M", "-S", "-m", "-accel", "-enable-kvm":
			ok = true
		}
	}
	return p, ok
}

// arguments are those of a command line as /proc has it, the program first.
func arguments(cmdline []byte) []string {
	const end = "\x00"
	text := string(cmdline)
	if !strings.Contains(text, end) {
		text = strings.ReplaceAll(text, "\n", end) // a recording that is text
	}
	return strings.Split(strings.TrimRight(text, end), end)
}

// countOf reads the value of -smp: "4,sockets=2" or "cpus=4,maxcpus=8"; 0 where it says only a topology.
func countOf(value string) int {
	for option := range strings.SplitSeq(value, ",") {
		n, err := strconv.Atoi(strings.TrimPrefix(option, "cpus="))
		if err == nil && n > 0 && n <= farm.MaxCPUs {
			return n
		}
	}
	return 0
}

// guestName reads the value of -name: "web,process=x" or "guest=web,debug-threads=on". A comma in the name is doubled.
func guestName(value string) string {
	const comma = "\x01"
	for i, option := range strings.Split(strings.ReplaceAll(value, ",,", comma), ",") {
		key, text, named := strings.Cut(option, "=")
		switch {
		case named && key == "guest":
			return strings.ReplaceAll(text, comma, ",")
		case !named && i == 0:
			return strings.ReplaceAll(key, comma, ",")
		}
	}
	return ""
}

// Threads reads the threads of a process, in the order of their IDs: names, where they may run, and which vCPU they
// run.
func Threads(fsys fs.FS, pid int) ([]farm.Thread, error) {
	dir := path.Join("proc", strconv.Itoa(pid), "task")
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return nil, err
	}
	if len(entries) > maxThreads {
		return nil, fmt.Errorf("%s has %d entries", dir, len(entries))
	}
	var threads []farm.Thread
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		t, err := readThread(fsys, path.Join(dir, e.Name(), "status"))
		if vanished(err) {
			continue // worker threads come and go
		}
		if err != nil {
			return nil, err
		}
		t.ID = id
		threads = append(threads, t)
	}
	if len(threads) == 0 {
		return nil, fs.ErrNotExist // all have ended
	}
	slices.SortFunc(threads, func(a, b farm.Thread) int { return a.ID - b.ID })
	return threads, nil
}

func readThread(fsys fs.FS, name string) (farm.Thread, error) {
	t := farm.Thread{VCPU: farm.NoVCPU, LastCPU: -1}
	text, err := readSome(fsys, name, maxStatus)
	if err != nil {
		return t, err
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); key {
		case "Name":
			t.Name, t.VCPU = value, vcpuNumber(value)
		case "State":
			t.State = value[:min(len(value), 1)]
		case "Cpus_allowed_list":
			if t.Allowed, err = farm.ParseCPUSet(value); err != nil {
				return t, fmt.Errorf("read %s: %w", name, err)
			}
		}
	}
	return t, nil
}

// vcpuNumber reads QEMU's names of vCPU threads: "CPU 3/KVM", "CPU 3/TCG"; and "ALL CPUs/TCG", one thread for all, as
// the first.
func vcpuNumber(name string) int {
	if name == "ALL CPUs/TCG" {
		return 0
	}
	text, ok := strings.CutPrefix(name, "CPU ")
	text, _, slash := strings.Cut(text, "/")
	n, err := strconv.Atoi(text)
	if !ok || !slash || err != nil || n < 0 || n >= farm.MaxCPUs {
		return farm.NoVCPU
	}
	return n
}

// lastCPU reads field 39 of proc(5)'s stat; -1 when it is not there.
func lastCPU(fsys fs.FS, name string) int {
	text, err := readSome(fsys, name, maxStatus)
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(procstat.Parse(text).Field(39))
	if err != nil {
		return -1
	}
	return n
}

// NodeMemory reads on which nodes the memory of a process lies, and which nodes strictly bound memory is bound to:
// "bind:0-1" is what QEMU's memory backends ask for; a preferred or default policy binds nothing. Programs and
// libraries, which processes share, do not count. It is empty on a kernel without NUMA. Reading walks the page tables
// of the process.
func NodeMemory(fsys fs.FS, pid int) (out farm.NodeMemory, err error) {
	name := path.Join("proc", strconv.Itoa(pid), "numa_maps")
	info, err := fs.Stat(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	if !info.Mode().IsRegular() {
		// a pipe could wait for ever
		return out, &fs.PathError{Op: "read", Path: name, Err: errors.New("not a regular file")}
	}
	f, err := fsys.Open(name)
	if err != nil {
		return out, err
	}
	defer f.Close()
	out.Resident = map[int]farm.Bytes{}
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 0, 4096), maxMapping)
	n := 0
	for ; lines.Scan() && n < maxMappings; n++ {
		m, err := parseMapping(lines.Text())
		if err != nil {
			return farm.NodeMemory{}, fmt.Errorf("read %s: %w", name, err)
		}
		add(&out, m)
	}
	if n == maxMappings {
		return farm.NodeMemory{}, fmt.Errorf("read %s: more than %d mappings", name, maxMappings)
	}
	if err := lines.Err(); err != nil {
		return farm.NodeMemory{}, fmt.Errorf("read %s: %w", name, err)
	}
	return out, nil
}

// add counts a mapping in. Those that are bound to the same nodes are one.
func add(out *farm.NodeMemory, m mapping) {
	for node, size := range m.resident {
		out.Resident[node] += size
	}
	if m.bound.Empty() {
		return
	}
	i := slices.IndexFunc(out.Bound, func(b farm.BoundMemory) bool { return b.Nodes.Equal(m.bound) })
	if i < 0 {
		i = len(out.Bound)
		out.Bound = append(out.Bound, farm.BoundMemory{Nodes: m.bound, Resident: map[int]farm.Bytes{}})
	}
	for node, size := range m.resident {
		out.Bound[i].Resident[node] += size
	}
}

// mapping is one line of numa_maps.
type mapping struct {
	bound    farm.CPUSet
	resident map[int]farm.Bytes // nil where the mapping does not count
}

// parseMapping reads a line as "7f… bind:0 file=/memfd:x huge anon=3 N0=3 kernelpagesize_kB=2048". Pages are of that
// size; those of transparent huge pages are counted in small ones. See numa(7).
func parseMapping(line string) (mapping, error) {
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return mapping{}, nil
	}
	var m mapping
	if policy, list, ok := strings.Cut(fields[1], ":"); ok && strings.HasPrefix(policy, "bind") {
		var err error
		if m.bound, err = farm.ParseCPUSet(list); err != nil {
			return m, err
		}
	}
	pages, size, counts := map[int]uint64{}, uint64(4), true
	for _, field := range fields[2:] {
		key, value, _ := strings.Cut(field, "=")
		if key == "file" {
			counts = isMemory(value)
			continue
		}
		if node, ok := strings.CutPrefix(key, "N"); ok {
			id, err1 := strconv.Atoi(node)
			count, err2 := strconv.ParseUint(value, 10, 44)
			if err1 != nil || err2 != nil || id < 0 || id > maxNode {
				return m, fmt.Errorf("invalid count of a node: %q", field)
			}
			pages[id] = count
		}
		if key == "kernelpagesize_kB" {
			var err error
			if size, err = strconv.ParseUint(value, 10, 64); err != nil || size > uint64(16*farm.GiB/farm.KiB) {
				return m, fmt.Errorf("invalid page size %q", field)
			}
		}
	}
	if !counts {
		return m, nil
	}
	m.resident = map[int]farm.Bytes{}
	for id, count := range pages {
		if size > 0 && count > uint64(farm.MaxMemory)*16/size/1024 {
			return m, fmt.Errorf("%d pages of %d KiB on node %d", count, size, id)
		}
		m.resident[id] = farm.Bytes(count*size) * farm.KiB
	}
	return m, nil
}

// isMemory reports whether a file holds a guest's memory, and is not a program or library.
func isMemory(file string) bool {
	return slices.ContainsFunc([]string{"/dev/", "/memfd:", "/anon_hugepage", "/SYSV", "/run/", "/var/"},
		func(prefix string) bool { return strings.HasPrefix(file, prefix) })
}

// readSome reads at most limit bytes of a file. The files of /proc do not tell their size.
func readSome(fsys fs.FS, name string, limit int64) ([]byte, error) {
	return hosttree.NewFiles(fsys).First(name, limit)
}
