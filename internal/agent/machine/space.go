package machine

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

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
)

// freeSpace is what a directory's file system has left.
func freeSpace(dir string) (farm.Bytes, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return farm.Bytes(s.Bavail) * farm.Bytes(s.Bsize), nil
}

// SpaceToGoOn is what a VM needs that has found no space: with less free it is stopped again at once.
const SpaceToGoOn = 64 * farm.MiB

// SpaceAgain reports whether a machine finds space for what it writes, in its files and in its volumes.
func (h *Host) SpaceAgain(m *Machine) bool { return h.fullPlace(m) == "" }

// fullPlace is what has no room for what a machine writes; "" where all have.
func (h *Host) fullPlace(m *Machine) string {
	dir := filepath.Dir(m.Disks)
	if free, err := h.FreeSpace(dir); err != nil || free < SpaceToGoOn {
		return "the file system of " + dir
	}
	p := m.Pool()
	if p == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookLimit)
	defer cancel()
	if place := p.FullPlace(ctx, m.Name); place != "" {
		return "the thin pool " + place
	}
	return ""
}

// lookLimit is for LVM to say how full a pool is.
const lookLimit = 10 * time.Second

// DiskFull is the error of a machine that finds none.
func (h *Host) DiskFull(m *Machine, what string) error {
	full := h.fullPlace(m)
	if full == "" {
		full = "the file system of " + filepath.Dir(m.Disks) // a moment ago
	}
	return &farm.Error{Kind: farm.Unavailable, Code: CodeVMDiskFull,
		Hint:    "free space there; `grange host show` says how much is left, and what was promised to disks of VMs",
		Message: fmt.Sprintf("%s on the host is full; %s", full, what)}
}

// Short returns what the host has less of than its minimum. What cannot be read is not known to be short.
func (h *Host) Short() []string {
	c := h.Config()
	free, err := h.FreeSpace(c.StateDir)
	available, read := availableMemory(os.DirFS("/"))
	return shortOf([]amount{{"disk space in " + c.StateDir, free, err == nil, c.Minimum.Disk},
		{"memory", available, read, c.Minimum.Memory}})
}

// amount is what there is of one resource, if that is known, and what there must be.
type amount struct {
	what    string
	have    farm.Bytes
	known   bool
	minimum farm.Bytes
}

func shortOf(all []amount) (short []string) {
	for _, a := range all {
		if a.known && a.have < a.minimum {
			short = append(short, fmt.Sprintf("%s is short: %v free, the minimum is %v", a.what,
				a.have/farm.MiB*farm.MiB, a.minimum))
		}
	}
	return short
}

// availableMemory is the kernel's own estimate of what new work could use without swapping.
func availableMemory(files fs.FS) (farm.Bytes, bool) {
	text, err := fs.ReadFile(files, "proc/meminfo")
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(text) {
		if fields := strings.Fields(string(line)); len(fields) >= 2 && fields[0] == "MemAvailable:" {
			kib, err := strconv.ParseUint(fields[1], 10, 50)
			return farm.Bytes(kib) * farm.KiB, err == nil
		}
	}
	return 0, false
}

// TakesNothing returns why the host takes no new VM; empty: it does.
func (h *Host) TakesNothing() []string {
	out := h.Short()
	if d, drained := h.Ledger.Drained(); drained {
		out = append(out, "it is drained: "+d.Reason)
	}
	return out
}

// Refusal is the error of a cloud VM that may not start here now; nil where it may.
func (h *Host) Refusal() error {
	if d, drained := h.Ledger.Drained(); drained {
		return d.Refusal()
	}
	if short := h.Short(); len(short) > 0 {
		return &farm.Error{Kind: farm.NoCapacity, Code: CodeBelowMinimum,
			Message: "the host starts no VMs: " + strings.Join(short, "; "),
			Hint:    "free what is short, or see [minimum] in the agent's configuration"}
	}
	return nil
}
