package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/grange-project/grange/internal/agent/binds"
	"github.com/grange-project/grange/internal/agent/cloud"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/farm"
)

// record is what a VM carries in the hypervisor's metadata: all that a new agent must know of it. It holds no
// environment and no secret. Fields are only ever added.
type record struct {
	Version int
	VM      string
	Name    string
	Job     string
	Attempt int // of the job to get a VM, from 1
	Created time.Time
	Image   string
	Digest  string
	Shape   farm.Shape
	Plan    farm.Plan
	User    string
	Command string // its first words, for lists
	Caller  Caller
	Keep    bool
	Judged  string // digest of the job's request, which was allowed; "": an earlier release wrote the record
	OneFS   bool   // the site's policy: binds show nothing that is mounted below them
	// the site's policy: which gateways binds may have; nil: all
	Gateways []farm.Gateway `json:",omitempty"`
	Binds    []binds.Bound  `json:",omitempty"` // of the job that the VM was made for
	Worker   *workerRecord  // nil: the VM is a job's, or
	Cloud    *cloud.About   // the server's: it has no job
}

const recordVersion = 1

func (r record) encode() ([]byte, error) { return json.Marshal(r) }

func decodeRecord(text []byte) (record, error) {
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return r, err
	}
	if r.Version < 1 || r.VM == "" || r.Job == "" && r.Cloud == nil {
		return r, fmt.Errorf("a record of version %d without VM or job", r.Version)
	}
	return r, nil
}

// taskRecord is what an agent keeps of one task of a batch job in its VM, over a restart: the VM's own record is that
// of the task which it was made for. It is written before the caller is told that its job will start.
type taskRecord struct {
	Job     string
	Port    int
	User    string
	Command string
	Caller  Caller
	Keep    bool
	Judged  string
	OneFS   bool // the site's policy: binds show nothing that is mounted below them
	// the site's policy: which gateways binds may have; nil: all
	Gateways []farm.Gateway `json:",omitempty"`
}

// tasksDir is below the directory of a VM's sockets.
const tasksDir = "tasks"

func (j *job) file(m *machine.Machine) string {
	return filepath.Join(m.Sockets, tasksDir, j.id+".json")
}

// writeFile keeps a task. A job that has its VM to itself is in the VM's record.
func (j *job) writeFile(m *machine.Machine) error {
	if j.vm.key == "" {
		return nil
	}
	text, err := json.Marshal(taskRecord{Job: j.id, Port: j.port, User: j.record.User, Command: j.record.Command,
		Caller: j.caller, Keep: j.record.Keep, Judged: j.record.Judged, OneFS: j.record.OneFS,
		Gateways: j.record.Gateways})
	if err != nil {
		return err
	}
	path := j.file(m)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(path, text, 0o600)
}

func (j *job) removeFile(m *machine.Machine) {
	if err := os.Remove(j.file(m)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		j.log().Error("file of a task stays", "error", err)
	}
}

// tasksOf are those that an earlier agent kept of a machine; none where the machine has one job, or none of its tasks
// had been told that it will start.
func tasksOf(m *machine.Machine) ([]taskRecord, error) {
	paths, err := filepath.Glob(filepath.Join(m.Sockets, tasksDir, "*.json"))
	if err != nil {
		return nil, err
	}
	var found []taskRecord
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var t taskRecord
		if err := json.Unmarshal(text, &t); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		found = append(found, t)
	}
	return found, nil
}

// encodeCloud is the record of a cloud VM's machine.
func encodeCloud(c cloud.Carried) ([]byte, error) {
	return record{Version: recordVersion, VM: c.ID, Name: c.Name, Created: c.Created, Image: c.Image, Digest: c.Digest,
		Shape: c.Shape, Plan: c.Plan, User: c.Owner, Cloud: &c.About}.encode()
}

// carried is such a record as encodeCloud has it.
func (r record) carried() cloud.Carried {
	return cloud.Carried{ID: r.VM, Name: r.Name, Created: r.Created, Image: r.Image, Digest: r.Digest, Shape: r.Shape,
		Plan: r.Plan, About: *r.Cloud}
}
