package selftest

import (
	"bufio"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/procstat"
	"github.com/grange-project/grange/internal/selftest/verdict"
)

// openFiles are what a process's descriptors lead to.
func openFiles(pid int) ([]string, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var links []string
	for _, e := range entries {
		if l, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			links = append(links, l)
		}
	}
	return links, nil
}

// statField reads a field of proc(5)'s stat by its number there.
func statField(pid, number int) uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(procstat.Parse(text).Field(number), 10, 64)
	return n
}

// guestTicks is the CPU time that the kernel counted in guests of a process.
func guestTicks(pid int) uint64 { return statField(pid, 43) }

// started is when a process started: with its number it is that process for ever.
func started(pid int) uint64 { return statField(pid, 22) }

// status reads lines of a process's status.
func status(pid int, names ...string) map[string]string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); slices.Contains(names, name) {
			out[name] = strings.TrimSpace(value)
		}
	}
	return out
}

// uidOf is the effective user of a process; -1 where it has ended.
func uidOf(pid int) int {
	ids := strings.Fields(status(pid, "Uid")["Uid"])
	if len(ids) < 2 {
		return -1
	}
	n, err := strconv.Atoi(ids[1])
	if err != nil {
		return -1
	}
	return n
}

// label reads how the host's security module confines a process.
func (t *tester) label(pid int, ownUser bool) verdict.Label {
	module, enforcing := securityModule(os.DirFS("/sys"))
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/attr/%s/current", pid, module))
	if err != nil {
		text, _ = os.ReadFile(fmt.Sprintf("/proc/%d/attr/current", pid))
	}
	l := verdict.ParseLabel(module, string(text), enforcing)
	l.Root, l.OwnUser = uidOf(pid) == 0, ownUser
	return l
}

// securityModule is the one that libvirt can confine QEMU by; "" where the host has neither.
func securityModule(sys fs.FS) (name string, enforcing bool) {
	if text, err := fs.ReadFile(sys, "fs/selinux/enforce"); err == nil {
		return "selinux", strings.TrimSpace(string(text)) == "1"
	}
	text, err := fs.ReadFile(sys, "module/apparmor/parameters/enabled")
	if err == nil && strings.TrimSpace(string(text)) == "Y" {
		return "apparmor", true // which profiles enforce is theirs to say
	}
	return "", false
}

// groups reads which control groups the host has.
func groups(root fs.FS) verdict.Groups {
	if text, err := fs.ReadFile(root, "cgroup.controllers"); err == nil {
		return verdict.Groups{Version: 2, Controllers: strings.Fields(string(text))}
	}
	if _, err := fs.Stat(root, "memory"); err == nil {
		return verdict.Groups{Version: 1}
	}
	return verdict.Groups{}
}

// memoryUse is what a QEMU takes beside its guest's memory: its own pages and its page tables. Clean pages of programs
// and libraries are not among them: the kernel drops those before a job ends for want of memory.
func memoryUse(pid int, p farm.Plan, emulated bool) verdict.MemoryUse {
	u := verdict.MemoryUse{Need: farm.Need(p.Memory(), len(p.VCPUs), emulated)}
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return u
	}
	defer f.Close()
	var cells []farm.Bytes
	for _, c := range p.Cells {
		cells = append(cells, c.Memory)
	}
	own, guest := ownMemory(bufio.NewScanner(f), cells)
	u.Overhead = own + kib(status(pid, "VmPTE")["VmPTE"])
	u.Known = guest
	return u
}

// ownMemory adds up a process's mappings, without those that are as large as a guest's cell: these are the guest's
// memory. guest reports whether all of it was found.
func ownMemory(smaps *bufio.Scanner, cells []farm.Bytes) (own farm.Bytes, guest bool) {
	left := slices.Clone(cells)
	ofGuest := false
	for smaps.Scan() {
		fields := strings.Fields(smaps.Text())
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "Size:":
			i := slices.Index(left, kib(fields[1]))
			if ofGuest = i >= 0; ofGuest {
				left = slices.Delete(left, i, i+1)
			}
		case "Private_Dirty:", "Shared_Dirty:":
			if !ofGuest {
				own += kib(fields[1])
			}
		}
	}
	return own, len(left) == 0 && smaps.Err() == nil
}

// kib reads a number of KiB, with its unit or without.
func kib(text string) farm.Bytes {
	n, _ := strconv.ParseUint(strings.TrimSuffix(text, " kB"), 10, 40)
	return farm.Bytes(n) * farm.KiB
}

// listener is the process that made a socket, by the kernel's word; 0 where nobody listens.
func listener(socket string) int {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return 0
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}
