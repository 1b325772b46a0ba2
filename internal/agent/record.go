package agent

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/grange-project/grange/internal/agent/binds"
	"github.com/grange-project/grange/internal/agent/cloud"
	"github.com/grange-project/grange/internal/agent/filesystems"
	"github.com/grange-project/grange/internal/agent/leases"
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
	Gateways []farm.Gateway   `json:",omitempty"`
	Binds    []binds.Bound    `json:",omitempty"` // of the job that the VM was made for
	Uses     filesystems.Used // what network file systems the job's directories are of
	// what the VM's Slurm allocation has here, and the process that lasts as long; nil: the VM ends with its last job
	Allocation *Caller       `json:",omitempty"`
	Site       string        `json:",omitempty"` // the network of [networks] that the VM is on; "": none of them
	Lease      *leases.Lease `json:",omitempty"` // nil: it has none, or none yet
	Services   []string      `json:",omitempty"` // of the host that it may use, by name
	Pool       string        `json:",omitempty"` // whose limits end it; "": it is of none
	// PullEntry is the entry of pull_images that lets the caller have the image fetched; "": none is needed.
	PullEntry string        `json:",omitempty"`
	Worker    *workerRecord // nil: the VM is a job's, or
	Cloud     *cloud.About  // the server's: it has no job
}

const recordVersion = 1

// hostname is what the guest is called: by the site's registry, or as its VM.
func (r record) hostname() string {
	if r.Lease != nil {
		return r.Lease.Name
	}
	return r.Name
}

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

// workerRecord is what a worker's VM carries beside what every VM carries. An address is leased as long as a record has
// it: leases survive what VMs survive, and are free when the VM is gone.
type workerRecord struct {
	Name    string
	Image   string // as people call it
	Address netip.Prefix
	MAC     string
	Gateway string
	Conf    string
	Warm    bool
	// from other workers of this host
	Isolated bool
}
