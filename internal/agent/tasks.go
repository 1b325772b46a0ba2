package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/grange-project/grange/internal/agent/filesystems"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/farm"
)

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
	Uses     filesystems.Used
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
		Gateways: j.record.Gateways, Uses: j.record.Uses})
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
