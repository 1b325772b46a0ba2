package apply

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// System is a host that is planned for and changed: the one we run on, or a tree of files in its place.
type System interface {
	Root() *os.Root
	Live() bool
	Owner() int // of files that we make
	Group() int
	// VMs lists those that run.
	VMs() ([]VM, error)

	// Write sets a value of /sys or /proc/sys.
	Write(ctx context.Context, path, value string) error
	// Unmerge takes KSM's pages apart until that is done or ctx ends. Either way nothing is merged any more when it
	// returns.
	Unmerge(ctx context.Context) error
	// Service returns the state of a unit; one that nobody knows is stopped and not managed.
	Service(ctx context.Context, unit string) (Service, error)
	SetService(ctx context.Context, unit string, want Service) error
	// Load loads kernel modules, in the order given, so that their parameters are those given; loaded ones are taken
	// out first.
	Load(ctx context.Context, want []Module) error
	// UpdateBoot makes the boot loader's own files from those of /etc.
	UpdateBoot(ctx context.Context) error
	// CanUpdateBoot reports whether this host has a program for that.
	CanUpdateBoot() bool

	// Touches lists what a step changes besides by what it is for, when an undo of it is to put these entries back as
	// they were. The kernel of a live host looks after such things itself.
	Touches(s Step) ([]string, error)
}

// Module is a kernel module and its parameters.
type Module struct {
	Name   string
	Params map[string]string
}

// modulesAround lists the loaded modules that a new load of unit takes along, each after those that it needs, with all
// their parameters: removing a module removes what nobody else needs, too.
func modulesAround(root *os.Root, unit string) ([]Module, error) {
	const most = 64
	names := []string{unit}
	all, err := entries(root, "sys/module")
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(names) && len(names) < most; i++ {
		holders, err := entries(root, "sys/module/"+names[i]+"/holders")
		if err != nil {
			return nil, err
		}
		for _, m := range all {
			if _, err := root.Lstat("sys/module/" + m + "/holders/" + names[i]); err == nil {
				holders = append(holders, m)
			}
		}
		for _, m := range holders {
			if moduleName.MatchString(m) && !slices.Contains(names, m) {
				names = append(names, m)
			}
		}
	}
	names, err = inLoadOrder(root, names)
	if err != nil {
		return nil, err
	}
	var out []Module
	for _, name := range names {
		params, err := moduleParams(root, name)
		if err != nil {
			return nil, err
		}
		out = append(out, Module{name, params})
	}
	return out, nil
}

// inLoadOrder sorts modules so that each comes after those that it holds.
func inLoadOrder(root *os.Root, names []string) ([]string, error) {
	var out []string
	for range names {
		for _, m := range names {
			held := func(n string) bool {
				_, err := root.Lstat("sys/module/" + n + "/holders/" + m)
				return err == nil && n != m && !slices.Contains(out, n)
			}
			if !slices.Contains(out, m) && !slices.ContainsFunc(names, held) {
				out = append(out, m)
			}
		}
	}
	if len(out) != len(names) {
		return nil, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadTree,
			Message: fmt.Sprintf("modules %s hold each other", strings.Join(names, ", "))}
	}
	return out, nil
}

// moduleParams reads the parameters of a module that may be read; nil when it is not loaded.
func moduleParams(root *os.Root, name string) (map[string]string, error) {
	if _, err := root.Stat("sys/module/" + name); missing(err) {
		return nil, nil
	}
	dir := "sys/module/" + name + "/parameters"
	files, err := entries(root, dir)
	if err != nil {
		return nil, err
	}
	params := map[string]string{}
	for _, f := range files {
		info, err := root.Stat(path.Join(dir, f))
		if err != nil || info.Mode()&0o444 == 0 {
			continue
		}
		if text, err := readBytes(root, path.Join(dir, f)); err == nil {
			params[f] = strings.TrimSpace(string(text))
		}
	}
	return params, nil
}

// VM is a virtual machine that runs, by its process.
type VM struct {
	PID  int    // 0 when not known
	Name string // of the machine, where its command line tells
}

func (v VM) String() string {
	if v.PID == 0 { // of a recording that has libvirt's word only
		return v.Name
	}
	return fmt.Sprintf("%s (PID %d)", v.Name, v.PID)
}

var guestName = lazyregexp.New(`^(?:guest=)?([^,]*)`)

// RunningVMs finds the processes that run virtual machines, whoever started them, by rising PID: QEMU, and all that
// have one of KVM's open, by which the module is in use.
func RunningVMs(root *os.Root) ([]VM, error) {
	names, err := entries(root, "proc")
	if err != nil {
		return nil, err
	}
	var out []VM
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		comm, err := readBytes(root, path.Join("proc", name, "comm"))
		if err != nil || !isVM(root, name, strings.TrimSpace(string(comm))) {
			continue // a process may end while we look
		}
		out = append(out, VM{pid, vmName(root, name, strings.TrimSpace(string(comm)))})
	}
	slices.SortFunc(out, func(a, b VM) int { return a.PID - b.PID })
	return out, nil
}

// isVM looks at a process's program and files. Its name is what it calls itself (libvirt's set_process_name gives QEMU
// the machine's): that counts only where we may not see the program, or a recording does not have it.
func isVM(root *os.Root, pid, comm string) bool {
	program, err := root.Readlink(path.Join("proc", pid, "exe"))
	if err != nil {
		return isQEMU(comm)
	}
	return isQEMU(path.Base(strings.TrimSuffix(program, " (deleted)"))) || holdsVM(root, pid)
}

// holdsVM reports whether a process has a virtual machine of KVM open.
func holdsVM(root *os.Root, pid string) bool {
	dir := path.Join("proc", pid, "fd")
	files, err := entries(root, dir)
	return err == nil && slices.ContainsFunc(files, func(fd string) bool {
		link, err := root.Readlink(path.Join(dir, fd))
		return err == nil && link == "anon_inode:kvm-vm"
	})
}

// isQEMU knows QEMU by the name of its program, of which the kernel keeps 15 letters.
func isQEMU(comm string) bool {
	return strings.HasPrefix(comm, "qemu-system-") || comm == "qemu-kvm" || comm == "kvm"
}

func vmName(root *os.Root, pid, otherwise string) string {
	text, err := readBytes(root, path.Join("proc", pid, "cmdline"))
	if err != nil {
		return farm.Printable(otherwise)
	}
	words := strings.Split(string(text), "\x00")
	for i, w := range words[:len(words)-1] {
		if m := guestName.FindStringSubmatch(words[i+1]); w == "-name" && m != nil && m[1] != "" {
			return farm.Printable(m[1])
		}
	}
	return farm.Printable(otherwise)
}
