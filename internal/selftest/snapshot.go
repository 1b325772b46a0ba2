package selftest

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/execjob"
	"github.com/grange-project/grange/internal/selftest/verdict"
)

// snapshot lists what of the host jobs could leave behind.
func (t *tester) snapshot() verdict.Snapshot {
	agent := listener(t.Socket)
	s := verdict.Snapshot{Items: map[string]map[string]bool{}, Amounts: map[string]int{}}
	add := func(kind string, items []string) {
		if s.Items[kind] == nil {
			s.Items[kind] = map[string]bool{}
		}
		for _, item := range items {
			s.Items[kind][item] = true
		}
	}
	// libvirt has a file of each domain: of those that run beside its socket, of those that are defined in /etc.
	add("libvirt's domains", below(filepath.Join(t.Paths.Libvirt, "qemu"), isXML))
	add("libvirt's domains", below("/etc/libvirt/qemu", isXML))
	add("files of libvirt", below(t.Paths.Libvirt, nil))
	add("files of libvirt", below("/etc/libvirt", nil))
	add("files of libvirt", below("/var/lib/libvirt/qemu", nil))
	add("files of libvirt", below(t.Paths.LibvirtLogs, isOld))
	add("files of the agent", below(t.Paths.Run, nil))
	add("files of the agent", below(t.Paths.State, isNoImage))
	add("files in /etc/apparmor.d", below("/etc/apparmor.d", nil))
	add("files of systemd-machined", below("/run/systemd/machines", nil))
	add("profiles of AppArmor", linesOf("/sys/kernel/security/apparmor/profiles"))
	add("control groups", below("/sys/fs/cgroup", isMachineGroup))
	add("network devices", below("/sys/class/net", nil))
	add("rules of nftables", ruleset())
	add("processes", t.processes(agent))
	add("locks", locks(agent))
	if files, err := openFiles(agent); err == nil {
		s.Amounts[verdict.Descriptors] = len(files)
	}
	for _, pool := range below("/sys/devices/system/node", isPool) {
		dir := filepath.Dir(pool)
		if used := number(pool) - number(filepath.Join(dir, "free_hugepages")); used > 0 {
			s.Amounts["huge pages in use"] += used
		}
	}
	return s
}

func isXML(path string) bool     { return strings.HasSuffix(path, ".xml") }
func isNoImage(path string) bool { return !strings.Contains(path, "/images/") }
func isPool(path string) bool    { return filepath.Base(path) == "nr_hugepages" }

// isOld reports whether a log should be gone: libvirt's log of a VM stays for an hour, for whoever wants to know why
// the VM ended.
func isOld(path string) bool {
	info, err := os.Stat(path)
	return err == nil && time.Since(info.ModTime()) > 2*time.Hour
}

func isMachineGroup(path string) bool {
	name := filepath.Base(path)
	return strings.Contains(name, "qemu") || strings.Contains(name, "grange-")
}

// below lists what is in a directory and below it, links not followed; all where which is nil. What goes meanwhile is
// left out.
func below(dir string, which func(path string) bool) []string {
	var found []string
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != dir && (which == nil || which(path)) {
			found = append(found, path)
		}
		return nil
	})
	return found
}

func linesOf(path string) []string {
	text, _ := os.ReadFile(path)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

func number(path string) int {
	text, _ := os.ReadFile(path)
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}

// ruleset is nftables' rules without their counters; none where there is no nft.
func ruleset() []string {
	for _, nft := range []string{"/usr/sbin/nft", "/sbin/nft"} {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if out, err := execjob.Program(ctx, nft, "--stateless", "list", "ruleset").Output(); err == nil {
			return rules(string(out))
		}
	}
	return nil
}

// rules names each line by those that it is in: the same rule in two chains is two.
func rules(text string) []string {
	var all, in []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
		case line == "}":
			in = in[:max(len(in)-1, 0)]
		default:
			all = append(all, strings.Join(append(in, line), " "))
			if strings.HasSuffix(line, "{") {
				in = append(in, line)
			}
		}
	}
	return all
}

// processes are those that a VM is made of: QEMU's, children of the agent, and whatever runs as a user of VMs.
func (t *tester) processes(agent int) []string {
	var found []string
	for _, pid := range pids() {
		program, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		program = filepath.Base(strings.TrimSuffix(program, " (deleted)"))
		parent, _ := strconv.Atoi(status(pid, "PPid")["PPid"])
		uid := uidOf(pid)
		ofVMs := uid >= 0 && !t.VMUIDs.None() && uint32(uid) >= t.VMUIDs.First && uint32(uid) <= t.VMUIDs.Last
		if strings.HasPrefix(program, "qemu-") || ofVMs || agent != 0 && parent == agent {
			found = append(found, fmt.Sprintf("%s, process %d, started at %d", program, pid, started(pid)))
		}
	}
	return found
}

func pids() []int {
	entries, _ := os.ReadDir("/proc")
	var all []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// locks are those that the agent and libvirt's daemons hold, without their order in the kernel's list.
func locks(agent int) []string {
	var found []string
	text, _ := os.ReadFile("/proc/locks")
	for line := range bytes.Lines(text) {
		fields := strings.Fields(string(line))
		if len(fields) < 6 || fields[1] == "->" {
			continue
		}
		pid, _ := strconv.Atoi(fields[4])
		program, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		switch filepath.Base(program) {
		case "libvirtd", "virtqemud", "virtlogd", "virtlockd":
		default:
			if pid != agent {
				continue
			}
		}
		found = append(found, filepath.Base(program)+": "+strings.Join(fields[1:], " "))
	}
	return found
}
