package agent

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// record is what a VM carries in the hypervisor's metadata: all that a new agent must know of it. It holds no environment
// and no secret. Fields are only ever added.
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
}

const recordVersion = 1

func (r record) encode() ([]byte, error) { return json.Marshal(r) }

func decodeRecord(text []byte) (record, error) {
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return r, err
	}
	if r.Version < 1 || r.VM == "" || r.Job == "" {
		return r, fmt.Errorf("a record of version %d without VM or job", r.Version)
	}
	return r, nil
}

// holder names the VM and its user for people.
func (r record) holder() string { return fmt.Sprintf("%s (%s: %s)", r.Name, r.User, r.Command) }
