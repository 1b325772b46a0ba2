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
	"github.com/grange-project/grange/internal/lazyregexp"
)

// tree is a directory that stands for a host. It does to files what the kernel and programs would do on the host, as
// far as an audit sees it.
type tree struct{ root *os.Root }

// Tree is a directory that holds a host's files as they lie below "/". Close its root when done.
func Tree(root *os.Root) System { return &tree{root} }

func (t *tree) Root() *os.Root                   { return t.root }
func (t *tree) Live() bool                       { return false }
func (t *tree) Owner() int                       { return os.Getuid() }
func (t *tree) Group() int                       { return os.Getgid() }
func (t *tree) UpdateBoot(context.Context) error { return nil }
func (t *tree) CanUpdateBoot() bool              { return true }

// runDir is where libvirt keeps the state of VMs that it started.
const runDir = "run/libvirt/qemu"

var domainState = lazyregexp.New(`<domstatus\b[^>]*\bstate=['"]([a-z]+)['"]`)

// VMs are the processes of QEMU, or what libvirt says runs where that is more: a recording may lack processes.
func (t *tree) VMs() ([]VM, error) {
	vms, err := RunningVMs(t.root)
	if err != nil {
		return nil, err
	}
	names, err := entries(t.root, runDir)
	var told []VM
	for _, name := range names {
		vm, ok := strings.CutSuffix(name, ".xml")
		if !ok {
			continue
		}
		text, err := readBytes(t.root, path.Join(runDir, name))
		if m := domainState.FindSubmatch(text); err == nil && m != nil && string(m[1]) != "shutoff" &&
			string(m[1]) != "crashed" {
			told = append(told, VM{Name: farm.Printable(vm)})
		}
	}
	if len(told) > len(vms) {
		vms = told
	}
	return vms, err
}

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

// maxComm is how many letters of a program's name the kernel keeps.
const maxComm = 15

// processes lists the directories of processes with a program's name.
func processes(root *os.Root, program string) ([]string, error) {
	names, err := entries(root, "proc")
	var out []string
	for _, name := range names {
		if strings.Trim(name, "0123456789") != "" {
			continue
		}
		comm, err := readBytes(root, path.Join("proc", name, "comm"))
		if err == nil && strings.TrimSpace(string(comm)) == program[:min(maxComm, len(program))] {
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
	entries, err := t.ofService(unit)
	if err != nil {
		return err
	}
	for _, name := range slices.Backward(entries) {
		keep := want.Enabled == "enabled"
		if strings.HasPrefix(name, "proc/") {
			keep = want.Active
		}
		if keep {
			continue
		}
		if err := putFile(t.root, name, nil); err != nil {
			return err
		}
	}
	if want.Enabled == "enabled" && now.Enabled != "enabled" {
		link := &File{Mode: fs.ModeSymlink | fs.ModePerm, UID: t.Owner(), GID: t.Group(),
			Link: "/usr/lib/systemd/system/" + unit + ".service"}
		if err := t.add(t.newStarter(unit), link); err != nil {
			return err
		}
	}
	if want.Active && !now.Active {
		return t.add(t.newProcess()+"/comm",
			&File{Mode: 0o644, UID: t.Owner(), GID: t.Group(), Data: []byte(unit[:min(maxComm, len(unit))] + "\n")})
	}
	return nil
}

// add makes an entry and the directories above it.
func (t *tree) add(name string, f *File) error {
	if err := t.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	return putFile(t.root, name, f)
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
