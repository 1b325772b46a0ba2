// Package slow says what a VM loses its time to, by two looks at its process some seconds apart.
package slow

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/procstat"
)

// Look is what the kernel has counted of a VM until one moment.
type Look struct {
	At      time.Time
	Threads map[int]Times     // by ID
	Exits   map[string]uint64 // by KVM's names; nil: they are not to be seen, see Unread
	Swapped farm.Bytes
	Unread  string // why Exits is nil
}

// Times are those of one thread.
type Times struct {
	User, System, Guest time.Duration // User holds Guest
	Disk                time.Duration // that it waited for disks
	Waited              time.Duration // for a CPU
	Faults              uint64        // that read from a disk
}

// The numbers of fields of /proc/PID/stat, as proc(5) has them.
const (
	majorFaults = 12
	userTime    = 14
	systemTime  = 15
	diskTime    = 42
	guestTime   = 43
)

// kvmDir is where KVM counts, for root.
const kvmDir = "sys/kernel/debug/kvm"

// Read looks at a VM's process in the files of a host.
func Read(files fs.FS, p farm.Process, now time.Time) (Look, error) {
	l := Look{At: now, Threads: map[int]Times{}}
	status, err := fs.ReadFile(files, fmt.Sprintf("proc/%d/status", p.PID))
	if err != nil {
		return l, err
	}
	l.Swapped = swapped(string(status))
	for _, t := range p.Threads {
		times, err := readThread(files, fmt.Sprintf("proc/%d/task/%d", p.PID, t.ID))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a worker that has ended
		}
		if err != nil {
			return l, err
		}
		l.Threads[t.ID] = times
	}
	if l.Exits, err = readExits(files, p.PID); err != nil {
		l.Exits, l.Unread = nil, "KVM's counters of exits are not to be seen: "+err.Error()
	}
	return l, nil
}

func swapped(status string) farm.Bytes {
	for line := range strings.Lines(status) {
		if text, ok := strings.CutPrefix(line, "VmSwap:"); ok {
			n, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 50)
			return farm.Bytes(n) * farm.KiB
		}
	}
	return 0
}

func readThread(files fs.FS, dir string) (t Times, err error) {
	text, err := fs.ReadFile(files, dir+"/stat")
	if err != nil {
		return t, err
	}
	stat := procstat.Parse(text)
	for _, one := range []struct {
		field int
		to    *time.Duration
	}{{userTime, &t.User}, {systemTime, &t.System}, {diskTime, &t.Disk}, {guestTime, &t.Guest}} {
		n, err := strconv.ParseUint(stat.Field(one.field), 10, 50)
		if err != nil {
			return t, fmt.Errorf("%s/stat: field %d is %q", dir, one.field, stat.Field(one.field))
		}
		*one.to = time.Duration(n) * procstat.Tick
	}
	t.Faults, _ = strconv.ParseUint(stat.Field(majorFaults), 10, 64)
	// run time and time in the queue, in nanoseconds; a kernel without it says nothing
	if text, err := fs.ReadFile(files, dir+"/schedstat"); err == nil {
		var ran, waited int64
		if n, _ := fmt.Sscan(string(text), &ran, &waited); n == 2 {
			t.Waited = time.Duration(waited)
		}
	}
	return t, nil
}

// readExits adds up what KVM counts of the VMs of a process, which is one.
func readExits(files fs.FS, pid int) (map[string]uint64, error) {
	dirs, err := fs.ReadDir(files, kvmDir)
	if err != nil {
		return nil, err
	}
	exits := map[string]uint64{}
	for _, d := range dirs {
		if !d.IsDir() || !strings.HasPrefix(d.Name(), strconv.Itoa(pid)+"-") {
			continue
		}
		counters, err := fs.ReadDir(files, path.Join(kvmDir, d.Name()))
		if err != nil {
			return nil, err
		}
		for _, c := range counters {
			if c.IsDir() {
				continue // of a vCPU
			}
			text, err := fs.ReadFile(files, path.Join(kvmDir, d.Name(), c.Name()))
			if n, bad := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil && bad == nil {
				exits[c.Name()] += n
			}
		}
	}
	if len(exits) == 0 {
		return nil, errors.New("there are none of this VM")
	}
	return exits, nil
}
