package cloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/farm"
)

// record is all that a host must know of a cloud VM, whatever becomes of agent, host and server. It is in
// a file beside the VM's disks, and written before what it tells of is made. Fields are only ever added. It may hold
// secrets, for user data may.
type record struct {
	Version int
	Created time.Time
	Wanted  fleet.WantedVM // as the server wanted it last

	Plan          farm.Plan  // its claim; without vCPUs: none yet
	Shape         farm.Shape // of the claim and of its machine
	Image, Digest string     // of its disks
	Disks         bool       // they are whole
	// of the batch system, which held its place when the claim was made; its CPUs are the claim's
	Job           string
	Yielded       bool // no job holds its place any more: Plan is what it had, and nobody's claim
	Boots, Builds int  // carried out, or refused for good
	Fresh         int  // carried out: its disks are of that build
	Refused       *int // the build that found no room

	Ran      bool   // it has run here: its disks hold what is nowhere else
	Boot     string // of the host, in which its machine was started last; "": it was stopped since, by order
	Halt     halt
	Reason   string // of the halt; or why its last end was none that anybody wanted
	Since    time.Time
	Failures int           // ends that nobody wanted, or starts that came to nothing, in a row
	CPUTime  time.Duration // of its earlier machines

	Out  *moveOut // the last move from here; nil: there was none
	In   *moveIn  // it comes from another host, and is not this one's yet
	Came string   // the move by which it came,
	From string   // and the host that it came from, by ID
}

// halt is why a VM that is wanted on is left as it is.
type halt string

const (
	haltNone   halt = ""
	haltOff    halt = "off"    // its guest powered off
	haltFailed halt = "failed" // it was refused, or keeps failing
)

const recordVersion = 1

// recordFile is in the directory of a VM's disks. A directory that has it is never swept away.
const recordFile = "wanted.json"

// Name is that of the VM's domain and directories: short, for paths of sockets end at 107 bytes, and none that a
// job's VM can have.
func Name(id string) string { return machine.NamePrefix + id[:13] }

func (h *Host) Dir(id string) string {
	return filepath.Join(h.Machines.CloudDir(), Name(id))
}

// writeRecord replaces the record whole, and on the disk. The file is ours alone.
func (h *Host) writeRecord(r record) error {
	dir := h.Dir(r.Wanted.ID)
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err == nil {
		if err := atomicfile.SyncDir(filepath.Dir(dir)); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, recordFile), text, 0o600)
}

// readRecords reads all records. One that cannot be read is left alone, with all that lies beside it.
func (h *Host) readRecords() []record {
	paths, _ := filepath.Glob(filepath.Join(h.Machines.CloudDir(), "*", recordFile))
	var all []record
	for _, path := range paths {
		var r record
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err == nil && (r.Version < 1 || !farm.IsID(r.Wanted.ID) ||
			filepath.Base(filepath.Dir(path)) != Name(r.Wanted.ID)) {
			err = fmt.Errorf("it is of version %d and of VM %q", r.Version, r.Wanted.ID)
		}
		if err != nil {
			h.log.Error("the record of a cloud VM cannot be read; its disks are left alone", "path", path,
				"error", err)
			continue
		}
		all = append(all, r)
	}
	return all
}

// removeFiles removes all that the host has of a VM: the record last, so that what is cut short goes on.
func (h *Host) removeFiles(m *machine.Machine) error {
	if err := os.RemoveAll(m.Sockets); err != nil {
		return err
	}
	if err := removeDisks(m.Disks, func(name string) bool { return name != recordFile }); err != nil {
		return err
	}
	return h.Machines.RemoveDisks(m)
}

// removeDisks removes those files of a VM's directory that which names; a directory that is not there has none.
func removeDisks(dir string, which func(name string) bool) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if which(e.Name()) {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// Keeps reports whether a directory of disks belongs to a cloud VM. What cannot be told does.
func Keeps(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, recordFile))
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR)
}
