package apply

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// tree is a directory that stands for a host. It does to files what the kernel and programs would do on the host, as far as an
// audit sees it.
type tree struct{ root *os.Root }

// Tree is a directory that holds a host's files as they lie below "/". Close its root when done.
func Tree(root *os.Root) System { return &tree{root} }

func (t *tree) Root() *os.Root                   { return t.root }
func (t *tree) Live() bool                       { return false }
func (t *tree) Owner() int                       { return os.Getuid() }
func (t *tree) Group() int                       { return os.Getgid() }
func (t *tree) UpdateBoot(context.Context) error { return nil }

// Write renders a value as the kernel would show it.
func (t *tree) Write(_ context.Context, name, value string) error {
	if p, ok := poolOf(name); ok {
		return t.setPages(p, value)
	}
	return t.put(name, func(old string) string { return render(old, value) })
}

// render is the text of a value's file after value was written to it.
func render(old, value string) string {
	body := strings.TrimRight(old, " \n\x00")
	end := old[len(body):]
	if now := chosen(body); now != body {
		words := strings.Fields(strings.NewReplacer("[", "", "]", "").Replace(body))
		if i := slices.Index(words, value); i >= 0 {
			words[i] = "[" + value + "]"
		}
		return strings.Join(words, " ") + end
	}
	if on, ok := truth(value); ok && (body == "Y" || body == "N") {
		value = map[bool]string{true: "Y", false: "N"}[on]
	}
	return value + end
}

// put changes the text of a file that is there; one that is not is left out, as recorded trees lack much.
func (t *tree) put(name string, change func(old string) string) error {
	name, err := resolve(t.root, name)
	if err != nil {
		return err
	}
	f, err := readFile(t.root, name)
	if err != nil || f == nil {
		return err
	}
	now := *f
	now.Data = []byte(change(f.text()))
	if now.equal(f) {
		return nil
	}
	return putFile(t.root, name, &now)
}

func (t *tree) number(name string) int64 {
	b, err := readBytes(t.root, name)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n
}

func poolDir(p pool, node int) string {
	name := fmt.Sprintf("hugepages-%dkB", p.size/farm.KiB)
	if node < 0 {
		return "sys/kernel/mm/hugepages/" + name
	}
	return fmt.Sprintf("sys/devices/system/node/node%d/hugepages/%s", node, name)
}

const (
	meminfo = "proc/meminfo"
	nodeDir = "sys/devices/system/node"
)

// infoOf is what tells of the memory of a node, or of the host when node is negative.
func infoOf(node int) string {
	if node < 0 {
		return meminfo
	}
	return fmt.Sprintf("%s/node%d/meminfo", nodeDir, node)
}

// nodes lists the numbers of the memory nodes, in order.
func (t *tree) nodes() ([]int, error) {
	names, err := entries(t.root, nodeDir)
	var out []int
	for _, name := range names {
		text, ok := strings.CutPrefix(name, "node")
		if n, err := strconv.Atoi(text); ok && err == nil && n >= 0 && len(out) < 1024 {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, err
}

// setPages gives a pool as many pages as memory allows, of one node or shared out over all, and keeps every count in step.
func (t *tree) setPages(p pool, value string) error {
	want, err := strconv.ParseInt(value, 10, 32)
	if err != nil || want < 0 {
		return fmt.Errorf("%q is no number of pages", value)
	}
	if p.node >= 0 {
		return t.setNodePages(p, p.node, want)
	}
	nodes, err := t.nodes()
	if err != nil {
		return err
	}
	nodes = slices.DeleteFunc(nodes, func(n int) bool { return !t.exists(poolDir(p, n) + "/nr_hugepages") })
	if len(nodes) == 0 {
		return t.setNodePages(p, -1, want)
	}
	for i, node := range nodes {
		share := want / int64(len(nodes))
		if int64(i) < want%int64(len(nodes)) {
			share++
		}
		if err := t.setNodePages(p, node, share); err != nil {
			return err
		}
	}
	return nil
}

// setNodePages sets the pool of a node, or of a host that does not tell of nodes when node is negative.
func (t *tree) setNodePages(p pool, node int, want int64) error {
	more := want - t.number(poolDir(p, node)+"/nr_hugepages")
	if room, known := t.room(node); known && more > 0 {
		more = min(more, room/int64(p.size))
	}
	if more < 0 { // pages in use stay
		more = max(more, -t.number(poolDir(p, node)+"/free_hugepages"))
	}
	if err := t.addPages(p, -1, more); err != nil || node < 0 {
		return err
	}
	return t.addPages(p, node, more)
}

// room is the memory of a node that the kernel could make into huge pages: free, or page cache that it can drop. It is not known
// of a recorded host with VMs on it, which would end first and give back nobody knows how much of each node.
func (t *tree) room(node int) (int64, bool) {
	if vms, err := RunningVMs(t.root); err != nil || len(vms) > 0 {
		return 0, false
	}
	b, err := readBytes(t.root, infoOf(node))
	if err != nil {
		return 0, false
	}
	m := readMemory(string(b))
	return m["MemFree"] + m["Active(file)"] + m["Inactive(file)"], m["MemTotal"] > 0
}

// addPages changes the counts of one node, or of the host when node is negative.
func (t *tree) addPages(p pool, node int, more int64) error {
	dir := poolDir(p, node)
	for _, name := range []string{"nr_hugepages", "free_hugepages"} {
		err := t.put(dir+"/"+name, func(old string) string {
			n, _ := strconv.ParseInt(strings.TrimSpace(old), 10, 64)
			return render(old, strconv.FormatInt(n+more, 10))
		})
		if err != nil {
			return err
		}
	}
	kib := more * int64(p.size/farm.KiB)
	counts := map[string]int64{"MemFree": -kib, "MemUsed": kib, "MemAvailable": -kib, "Hugetlb": kib}
	if t.defaultSize() == p.size {
		counts["HugePages_Total"], counts["HugePages_Free"] = more, more
	}
	return t.put(infoOf(node), func(old string) string { return addMemory(old, counts) })
}

// defaultSize is the size of the huge pages that meminfo counts.
func (t *tree) defaultSize() farm.Bytes {
	b, err := readBytes(t.root, meminfo)
	if err != nil {
		return 0
	}
	return farm.Bytes(readMemory(string(b))["Hugepagesize"])
}

// memoryLine takes a line of meminfo apart, the host's or a node's: everything up to the colon, the name, the blanks, the number.
func memoryLine(line string) (head, name, blanks string, n int64, tail string, ok bool) {
	head, rest, ok := strings.Cut(line, ":")
	name = head[strings.LastIndexByte(head, ' ')+1:]
	number := strings.TrimLeft(rest, " \t")
	blanks = rest[:len(rest)-len(number)]
	digits := len(number) - len(strings.TrimLeft(number, "0123456789"))
	n, err := strconv.ParseInt(number[:digits], 10, 64)
	return head, name, blanks, n, number[digits:], ok && err == nil
}

// readMemory reads meminfo: bytes, and plain counts for what has no unit.
func readMemory(text string) map[string]int64 {
	out := map[string]int64{}
	for line := range strings.Lines(text) {
		_, name, _, n, tail, ok := memoryLine(line)
		if !ok {
			continue
		}
		if strings.TrimSpace(tail) == "kB" {
			n *= int64(farm.KiB)
		}
		out[name] = n
	}
	return out
}

// addMemory adds to lines of meminfo, which keep their columns.
func addMemory(text string, counts map[string]int64) string {
	return edit(text, func(line string) []string {
		head, name, blanks, n, tail, ok := memoryLine(line)
		more, wanted := counts[name]
		if !ok || !wanted || more == 0 {
			return []string{line}
		}
		width := len(blanks) + len(strconv.FormatInt(n, 10))
		number := strconv.FormatInt(max(0, n+more), 10)
		return []string{head + ":" + strings.Repeat(" ", max(1, width-len(number))) + number + tail}
	})
}

const ksmDir = "sys/kernel/mm/ksm"

// Unmerge gives each sharer its own page.
func (t *tree) Unmerge(context.Context) error {
	kib := t.number(ksmDir+"/pages_sharing") * pageSize / int64(farm.KiB)
	for _, name := range []string{"pages_sharing", "pages_shared", "run"} {
		if err := t.put(ksmDir+"/"+name, func(old string) string { return render(old, "0") }); err != nil {
			return err
		}
	}
	return t.put(meminfo, func(old string) string {
		return addMemory(old, map[string]int64{"MemFree": -kib, "MemAvailable": -kib, "AnonPages": kib})
	})
}

// pageSize is that of ordinary pages on x86, which KSM counts in.
const pageSize = 4096

// Where systemd and System V init keep what starts at boot.
const unitDir = "etc/systemd/system"

var runLevels = []string{"etc/rc3.d", "etc/rc.d/rc3.d"}

// starters lists the links that start a service at boot.
func (t *tree) starters(unit string) ([]string, error) {
	var out []string
	dirs, err := entries(t.root, unitDir)
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		if !strings.HasSuffix(dir, ".wants") && !strings.HasSuffix(dir, ".requires") {
			continue
		}
		for _, kind := range []string{".service", ".socket"} {
			if link := path.Join(unitDir, dir, unit+kind); t.exists(link) {
				out = append(out, link)
			}
		}
	}
	for _, dir := range runLevels {
		names, err := entries(t.root, dir)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if len(name) == len(unit)+3 && name[0] == 'S' && strings.HasSuffix(name, unit) {
				out = append(out, path.Join(dir, name))
			}
		}
	}
	return out, nil
}

func (t *tree) exists(name string) bool {
	_, err := t.root.Lstat(name)
	return err == nil
}

// processes lists the directories of processes with a program's name, of which the kernel keeps 15 letters.
func processes(root *os.Root, program string) ([]string, error) {
	names, err := entries(root, "proc")
	var out []string
	for _, name := range names {
		if strings.Trim(name, "0123456789") != "" {
			continue
		}
		comm, err := readBytes(root, path.Join("proc", name, "comm"))
		if err == nil && strings.TrimSpace(string(comm)) == program[:min(15, len(program))] {
			out = append(out, path.Join("proc", name))
		}
	}
	return out, err
}

func (t *tree) Service(_ context.Context, unit string) (Service, error) {
	links, err := t.starters(unit)
	if err != nil {
		return Service{}, err
	}
	running, err := processes(t.root, unit)
	s := Service{Managed: true, Active: len(running) > 0, Enabled: "disabled"}
	if len(links) > 0 {
		s.Enabled = "enabled"
	}
	return s, err
}

// SetService takes away links and processes, or makes them.
func (t *tree) SetService(ctx context.Context, unit string, want Service) error {
	now, err := t.Service(ctx, unit)
	if err != nil {
		return err
	}
	if want.Enabled != now.Enabled || want.Active != now.Active {
		gone, err := t.ofService(unit)
		if err != nil {
			return err
		}
		for _, name := range slices.Backward(gone) {
			enabling := !strings.HasPrefix(name, "proc/")
			if enabling && want.Enabled != "enabled" || !enabling && !want.Active {
				if err := putFile(t.root, name, nil); err != nil {
					return err
				}
			}
		}
	}
	if want.Enabled == "enabled" && now.Enabled != "enabled" {
		link := t.newStarter(unit)
		if err := t.root.MkdirAll(path.Dir(link), 0o755); err != nil {
			return err
		}
		if err := putFile(t.root, link, &File{Mode: fs.ModeSymlink | 0o777, UID: t.Owner(), GID: t.Group(), Link: "/usr/lib/systemd/system/" + unit + ".service"}); err != nil {
			return err
		}
	}
	if want.Active && !now.Active {
		dir := t.newProcess()
		if err := t.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		return putFile(t.root, dir+"/comm", &File{Mode: 0o644, UID: t.Owner(), GID: t.Group(), Data: []byte(unit[:min(15, len(unit))] + "\n")})
	}
	return nil
}

func (t *tree) newStarter(unit string) string {
	return path.Join(unitDir, "multi-user.target.wants", unit+".service")
}

// newProcess is a process number that is free: one more than the highest.
func (t *tree) newProcess() string {
	names, _ := entries(t.root, "proc")
	last := 0
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			last = max(last, n)
		}
	}
	return "proc/" + strconv.Itoa(last+1)
}

// ofService lists all entries that exist because a service runs or is enabled, directories before what is in them.
func (t *tree) ofService(unit string) ([]string, error) {
	out, err := t.starters(unit)
	if err != nil {
		return nil, err
	}
	dirs, err := processes(t.root, unit)
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		err := fs.WalkDir(t.root.FS(), dir, func(name string, _ fs.DirEntry, err error) error {
			out = append(out, name)
			if err == nil && len(out) > maxEntries {
				err = unsafePath(dir, "holds too much")
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list /%s: %w", dir, err)
		}
	}
	return out, nil
}

// Load writes parameters where the kernel would show them.
func (t *tree) Load(ctx context.Context, want []Module) error {
	for _, m := range want {
		for _, name := range sortedKeys(m.Params) {
			if err := t.Write(ctx, "sys/module/"+m.Name+"/parameters/"+name, m.Params[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Touches lists every file that the simulation of a step may write.
func (t *tree) Touches(s Step) ([]string, error) {
	switch s.Kind {
	case StepValue:
		out := []string{s.Path}
		p, ok := poolOf(s.Path)
		if !ok {
			return out, nil
		}
		nodes, err := t.nodes()
		for _, node := range append(nodes, -1) {
			out = append(out, poolDir(p, node)+"/nr_hugepages", poolDir(p, node)+"/free_hugepages", infoOf(node))
		}
		return out, err
	case StepUnmerge:
		return []string{ksmDir + "/run", ksmDir + "/pages_sharing", ksmDir + "/pages_shared", meminfo}, nil
	case StepModule:
		var out []string
		for _, name := range sortedKeys(s.New.Params) {
			out = append(out, "sys/module/"+s.Unit+"/parameters/"+name)
		}
		return out, nil
	case StepService:
		out, err := t.ofService(s.Unit)
		if s.New.Service.On() {
			link, process := t.newStarter(s.Unit), t.newProcess()
			for _, name := range []string{link, process + "/comm"} {
				parents, err := missingParents(t.root, name)
				if err != nil {
					return nil, err
				}
				out = append(append(out, parents...), name)
			}
		}
		return out, err
	}
	return nil, nil
}
