package libvirt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hostfacts"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/numa"
)

// namePrefix begins the name of every machine of every agent.
const namePrefix = "grange-"

// process is one process for good: a number alone is given away again, a number with its start time is not.
type process struct {
	pid   int
	start string // in clock ticks since the host booted, as in /proc/PID/stat
}

// machineProcess is a QEMU process with one of our names.
type machineProcess struct {
	process
	name string
}

// machineProcesses finds the QEMU processes of all agents by machine ID, in one walk over /proc.
func machineProcesses() (map[string]machineProcess, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	dir.Close()
	if err != nil {
		return nil, err
	}
	found := map[string]machineProcess{}
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		id, name := machineOf(pid)
		if id == "" {
			continue
		}
		start, gone := started(pid)
		// Read again: the number may have been given away in between.
		if again, _ := machineOf(pid); gone || again != id {
			continue
		}
		found[id] = machineProcess{process{pid, start}, name}
	}
	return found, nil
}

// machineOf tells the ID and name of the machine that a process runs; both empty when it runs none of ours.
func machineOf(pid int) (id, name string) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !bytes.Contains(b, []byte("guest="+namePrefix)) {
		return "", ""
	}
	args := strings.Split(string(b), "\x00")
	if !strings.Contains(filepath.Base(args[0]), "qemu") {
		return "", ""
	}
	for i := range len(args) - 1 {
		switch value := args[i+1]; args[i] {
		case "-uuid":
			id = value
		case "-name":
			name, _, _ = strings.Cut(strings.TrimPrefix(value, "guest="), ",")
		}
	}
	if !strings.HasPrefix(name, namePrefix) {
		return "", ""
	}
	return id, name
}

// started tells when a process started, and whether it is gone. A zombie is gone: it holds no CPU and no memory.
func started(pid int) (start string, gone bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", true
	}
	// The name may hold blanks and brackets; the fields after the last bracket are plain. See proc(5): 3 is the state, 22 the start.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 {
		return "", true
	}
	return fields[19], fields[0] == "Z" || fields[0] == "X"
}

func (p process) alive() bool {
	if p.pid == 0 {
		return false
	}
	start, gone := started(p.pid)
	return !gone && start == p.start
}

// kill ends the process if it still runs machine id, and returns when it is gone.
func (p process) kill(ctx context.Context, id string) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", p.pid, err)
	}
	defer unix.Close(fd)
	// Looked at after the descriptor is open, so it is this process that the signal goes to.
	if got, _ := machineOf(p.pid); !p.alive() || got != id && got != "" {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", p.pid, err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		// Ready when all threads have ended. Short rounds, so that ctx counts.
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		switch {
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("wait for process %d: %w", p.pid, err)
		case n > 0 || !p.alive():
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("wait for process %d: %w", p.pid, context.Cause(ctx))
		case time.Now().After(deadline):
			return &farm.Error{
				Kind: farm.Unavailable, Code: hyper.CodeWillNotEnd,
				Message: fmt.Sprintf("process %d was killed and is still there after 30 seconds", p.pid),
				Hint:    "it waits for a device or file system that hangs; see its /proc/PID/stack",
			}
		}
	}
}

// observe reads the affinity of every thread, and the nodes that the guest's memory is bound to.
func (p process) observe() (numa.Observed, error) {
	root := os.DirFS("/")
	threads, err := hostfacts.Threads(root, p.pid)
	if err != nil {
		return numa.Observed{}, err
	}
	var o numa.Observed
	vcpus := map[int]farm.CPUSet{}
	for _, t := range threads {
		switch {
		case t.VCPU != farm.NoVCPU:
			vcpus[t.VCPU] = t.Allowed
		case !strings.HasPrefix(t.Name, "IO iothread") && !strings.HasPrefix(t.Name, touchingThread):
			o.Emulator = o.Emulator.Or(t.Allowed)
		}
	}
	for i := range len(vcpus) {
		cpus, ok := vcpus[i]
		if !ok {
			return numa.Observed{}, &farm.Error{
				Kind: farm.Internal, Code: hyper.CodeUnreadable,
				Message: fmt.Sprintf("process %d has %d vCPU threads and none for vCPU %d", p.pid, len(vcpus), i),
			}
		}
		o.VCPUs = append(o.VCPUs, cpus)
	}
	bound, _, err := hostfacts.NodeMemory(root, p.pid)
	if !bound.Empty() {
		o.Nodes = bound.List()
	}
	return o, err
}

// touchingThread starts the names of QEMU's thread contexts. They touch huge pages before the first instruction, from any CPU
// of the pages' node, and never run again.
const touchingThread = "TC "

// sockets lists the paths of unix sockets that the process holds. libvirt opens them and hands them over, so QEMU's
// command line does not name them.
func (p process) sockets() []string {
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid))
	if err != nil {
		return nil
	}
	held := map[string]bool{}
	for _, fd := range fds {
		target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", p.pid, fd.Name()))
		if inode, ok := strings.CutPrefix(target, "socket:["); err == nil && ok {
			held[strings.TrimSuffix(inode, "]")] = true
		}
	}
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/unix", p.pid))
	if err != nil {
		return nil
	}
	var paths []string
	for line := range strings.Lines(string(table)) {
		// Num RefCount Protocol Flags Type St Inode Path
		if f := strings.Fields(line); len(f) >= 8 && held[f[6]] && !slices.Contains(paths, f[7]) {
			paths = append(paths, f[7])
		}
	}
	return paths
}
