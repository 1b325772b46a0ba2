// Package fleet holds the wire types of the grange server and Go clients for them: for people and their tools, and for
// hosts. It imports the standard library and package api only. Fields are only ever added.
package fleet

import (
	"encoding/json"
	"time"

	"github.com/grange-project/grange/api"
)

// Quantities: memory and scratch are bytes, times are RFC 3339 in UTC, revisions are the store's counter, and every
// object's revision is its ETag.

// VM is one virtual machine of the fleet.
type VM struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Project string `json:"project"`
	Owner   string `json:"owner"`
	State   string `json:"state"` // farm.VMState's words
	// lines behind the first quote its console, for those who may read that
	Reason string `json:"reason,omitempty"`
	// what its owner should know: why it waits, that its host is being drained
	Notice  string     `json:"notice,omitempty"`
	StopsAt *time.Time `json:"stops_at,omitempty"` // the deadline of that drain
	Since   *time.Time `json:"since,omitempty"`    // of State, as its host says
	Ready   bool       `json:"ready"`              // its guest has said that it is up
	Power   string     `json:"power"`              // wanted: on, off, deleted
	Pending bool       `json:"pending,omitempty"`  // not all that was asked for is carried out yet
	Image   string     `json:"image"`
	Digest  string     `json:"digest,omitempty"`
	Shape   Shape      `json:"shape"`
	Cell    string     `json:"cell,omitempty"`
	Host    string     `json:"host,omitempty"` // its name
	// of its cell's batch system, which holds its place: slurm/17
	Job            string            `json:"job,omitempty"`
	Network        string            `json:"network,omitempty"`
	Address        string            `json:"address,omitempty"`
	MAC            string            `json:"mac,omitempty"`
	Hostname       string            `json:"hostname,omitempty"`
	Group          string            `json:"group,omitempty"`
	SecurityGroups []string          `json:"security_groups,omitempty"`
	Needs          []string          `json:"needs,omitempty"`
	Tags           map[string]string `json:"tags,omitempty"`
	Keys           []string          `json:"keys,omitempty"`
	Created        time.Time         `json:"created"`
	Expires        *time.Time        `json:"expires,omitempty"`
	Plan           *api.Plan         `json:"plan,omitempty"`
	CPUTime        float64           `json:"cpu_seconds"`
	Revision       int64             `json:"revision"`
	// PrivateKey is in the answer to the creation that asked for a key, and nowhere else ever after.
	PrivateKey string `json:"private_key,omitempty"`
}

// Shape is the size and tuning of a VM; words as `grange exec` takes them.
type Shape struct {
	Name    string `json:"name,omitempty"`
	CPUs    int    `json:"cpus"`
	Memory  uint64 `json:"memory"`
	Scratch uint64 `json:"scratch,omitempty"`
	Sockets int    `json:"sockets,omitempty"` // guest topology; all three or none
	Cores   int    `json:"cores,omitempty"`
	Threads int    `json:"threads,omitempty"`
	// MaxSockets and so on are the most that people may ask for; 0 bounds nothing.
	MaxSockets int        `json:"max_sockets,omitempty"`
	MaxCores   int        `json:"max_cores,omitempty"`
	MaxThreads int        `json:"max_threads,omitempty"`
	CPUModel   string     `json:"cpu_model,omitempty"`
	Display    bool       `json:"display,omitempty"` // it has a screen, keyboard and mouse
	Disks      *api.Disks `json:"disks,omitempty"`   // beside Scratch
	Pages      string     `json:"pages,omitempty"`
	NUMA       string     `json:"numa,omitempty"`
	Purpose    string     `json:"purpose,omitempty"`
	// ThreadPolicy, Emulator, Cache: as api.JobRequest.
	ThreadPolicy string `json:"thread_policy,omitempty"`
	Emulator     string `json:"emulator,omitempty"`
	Cache        string `json:"cache,omitempty"`
	// BandwidthIn and BandwidthOut are what a VM may receive and send, in bits a second; 0 is not limited.
	BandwidthIn  uint64 `json:"bandwidth_in,omitempty"`
	BandwidthOut uint64 `json:"bandwidth_out,omitempty"`
	Revision     int64  `json:"revision,omitempty"`
}

// VMRequest asks for VMs. With Count above 1 their names are NAME-1 and so on, and all are made or none.
type VMRequest struct {
	Project        string            `json:"project"`
	Name           string            `json:"name"`
	Count          int               `json:"count,omitempty"`
	Image          string            `json:"image,omitempty"`
	Shape          string            `json:"shape,omitempty"` // by name
	CPUs           int               `json:"cpus,omitempty"`  // instead of what the shape says, as the next two
	Memory         uint64            `json:"memory,omitempty"`
	Scratch        *uint64           `json:"scratch,omitempty"`
	Disks          *api.Disks        `json:"disks,omitempty"`     // what it leaves out is as the shape says
	CPUModel       string            `json:"cpu_model,omitempty"` // the user's choice, as the next three (F85, F90)
	Display        bool              `json:"display,omitempty"`
	Sockets        int               `json:"sockets,omitempty"`
	Cores          int               `json:"cores,omitempty"`
	Threads        int               `json:"threads,omitempty"`
	Cell           string            `json:"cell,omitempty"` // one of those that the project may use; empty: any
	Network        string            `json:"network,omitempty"`
	Address        string            `json:"address,omitempty"` // a static one of the network; empty: leased
	Group          string            `json:"group,omitempty"`
	SecurityGroups []string          `json:"security_groups,omitempty"` // missing: what the project says
	Needs          []string          `json:"needs,omitempty"`
	Tags           map[string]string `json:"tags,omitempty"`
	Keys           []string          `json:"keys,omitempty"`      // public SSH keys
	NewKey         bool              `json:"new_key,omitempty"`   // make one, and return its private half once
	UserData       []byte            `json:"user_data,omitempty"` // for cloud-init, base64 in JSON
	Expires        *time.Time        `json:"expires,omitempty"`
}

// VMUpdate changes a VM. What is nil stays.
type VMUpdate struct {
	Expires        *time.Time         `json:"expires,omitempty"` // the zero time: never
	Tags           *map[string]string `json:"tags,omitempty"`
	SecurityGroups *[]string          `json:"security_groups,omitempty"` // all of them
}

// VMResize gives a VM another size; it is stopped and started for that. Zero values stay.
type VMResize struct {
	Shape  string `json:"shape,omitempty"`
	CPUs   int    `json:"cpus,omitempty"`
	Memory uint64 `json:"memory,omitempty"`
}

// VMMove moves a VM to another host while it runs.
type VMMove struct {
	To string `json:"to,omitempty"` // a host of the VM's cell, by name or ID; empty: the best one that takes it
}

// Move is the last move of a VM.
type Move struct {
	ID      string     `json:"id"`
	VM      string     `json:"vm"` // ID
	From    string     `json:"from"`
	To      string     `json:"to"` // names of hosts
	By      string     `json:"by"` // who asked; "grange" by itself, for a drain
	Phase   string     `json:"phase"`
	Failure string     `json:"failure,omitempty"` // why the VM stays where it was
	Total   uint64     `json:"total_bytes"`       // to be copied, as far as is known: the guest goes on writing
	Done    uint64     `json:"done_bytes"`
	Since   time.Time  `json:"since"`
	Ended   *time.Time `json:"ended,omitempty"`
}

// Phases of a VM's move, as people see it.
const (
	PhasePreparing  = "preparing"  // the target makes room, and listens
	PhaseCopying    = "copying"    // the guest runs at the source
	PhaseCancelling = "cancelling" // its source has not said yet what became of it
	PhaseDone       = "done"       // the VM is the target's
	PhaseFailed     = "failed"     // the VM is where it was
)

// VMRebuild makes a VM anew from an image, with fresh disks, under its name and address.
type VMRebuild struct {
	Image string `json:"image,omitempty"` // empty: the one it has, as its name means now
}

// Quota bounds what VMs hold together; 0 bounds nothing.
type Quota struct {
	VMs     int    `json:"vms,omitempty"`
	CPUs    int    `json:"cpus,omitempty"`
	Memory  uint64 `json:"memory,omitempty"`
	Scratch uint64 `json:"scratch,omitempty"`
}

// Project is people, a quota and an account.
type Project struct {
	Name           string   `json:"name"`
	Account        string   `json:"account,omitempty"`
	Quota          Quota    `json:"quota"`
	Used           Quota    `json:"used"`
	Networks       []string `json:"networks,omitempty"`
	Shapes         []string `json:"shapes,omitempty"`
	Images         []string `json:"images,omitempty"`
	MaxAge         float64  `json:"max_age_seconds,omitempty"`
	Purpose        string   `json:"purpose,omitempty"`
	Pledge         int      `json:"pledge,omitempty"`          // CPUs that it was promised
	SecurityGroups bool     `json:"security_groups,omitempty"` // its VMs are in default, unless they name others
	SSHFrom        []string `json:"ssh_from,omitempty"`        // prefixes
	Cells          []string `json:"cells"`                     // where its new VMs may go now
	Nowhere        string   `json:"nowhere,omitempty"`         // why there is none
	Revision       int64    `json:"revision"`
}

// Cell is hosts with one broker.
type Cell struct {
	Name       string            `json:"name"`
	Broker     string            `json:"broker"`
	Open       bool              `json:"open"`
	Reason     string            `json:"reason,omitempty"`
	Default    bool              `json:"default"`
	Projects   []string          `json:"projects,omitempty"`
	Packing    string            `json:"packing"`
	KeepWhole  int               `json:"keep_whole,omitempty"`
	Overcommit float64           `json:"overcommit,omitempty"`
	Limits     Quota             `json:"limits"`
	PerHost    int               `json:"per_host,omitempty"`
	Services   bool              `json:"services,omitempty"`
	Batch      string            `json:"batch,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Drain      *Drain            `json:"drain,omitempty"`
	Hosts      int               `json:"hosts"`
	VMs        int               `json:"vms"`
	Revision   int64             `json:"revision"`
}

// Drain is a host or cell that is being emptied.
type Drain struct {
	Since    time.Time  `json:"since"`
	Deadline *time.Time `json:"deadline,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	By       string     `json:"by"`
	VMs      int        `json:"vms"`            // that are left
	Jobs     int        `json:"jobs,omitempty"` // of the batch system that still run there
}

// DrainRequest drains a host or a cell.
type DrainRequest struct {
	Deadline *time.Time `json:"deadline,omitempty"`
	Reason   string     `json:"reason,omitempty"`
}

// Host is an enrolled hypervisor.
type Host struct {
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	Cell        string            `json:"cell"`
	State       string            `json:"state"` // open, closed, draining, silent, fenced
	Reason      string            `json:"reason,omitempty"`
	Warnings    []string          `json:"warnings,omitempty"`
	Kind        string            `json:"kind,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Drain       *Drain            `json:"drain,omitempty"`
	Seen        *time.Time        `json:"seen,omitempty"`
	Version     string            `json:"version,omitempty"`
	Capability  int               `json:"capability,omitempty"`
	Accelerator string            `json:"accelerator,omitempty"`
	CPUs        int               `json:"cpus"`
	FreeCPUs    int               `json:"free_cpus"`
	Memory      uint64            `json:"memory"`
	FreeMemory  uint64            `json:"free_memory"`
	VMs         int               `json:"vms"`
	Orphans     []Orphan          `json:"orphans,omitempty"`
	Strangers   []Orphan          `json:"strangers,omitempty" doc:"what orphans were called; for one more release"`
	Images      []string          `json:"images,omitempty"`
	Networks    []string          `json:"networks,omitempty"`
	Enrolled    time.Time         `json:"enrolled"`
	CertExpires *time.Time        `json:"cert_expires,omitempty"`
	Revision    int64             `json:"revision"`
}

// Orphan is a VM that a host has and the server does not know any more. Nothing happens to it until an administrator
// has it removed.
type Orphan struct {
	ID      string `json:"id"`
	Name    string `json:"name,omitempty"` // "project/name", as the host knows it
	State   string `json:"state"`
	Evicted bool   `json:"evicted,omitempty"` // the host deletes it
}

// Eviction names orphans, by ID or name.
type Eviction struct {
	VMs []string `json:"vms" minItems:"1" maxItems:"1000"`
}

// Page is one page of a list. Next is the `after` of the next page; empty: there is none.
type Page[T any] struct {
	Items    []T    `json:"items"`
	Next     string `json:"next,omitempty"`
	Revision int64  `json:"revision"` // watch from here
}

// Change is one line of what ?watch tells: an object as it is now, or that it has gone.
type Change struct {
	Revision int64           `json:"revision"`
	Kind     string          `json:"kind"` // vm, host, cell, project, ...
	ID       string          `json:"id"`
	Deleted  bool            `json:"deleted,omitempty"`
	Object   json.RawMessage `json:"object,omitempty"` // VM, Host, ... as Kind says
}

// Why explains host by host why a VM is not, or would not be, somewhere.
type Why struct {
	Fits     int       `json:"fits"`
	Hosts    int       `json:"hosts"`
	Sums     []WhySum  `json:"sums"`               // by constraint, most refusals first
	Cheapest string    `json:"cheapest,omitempty"` // the least change that would admit it
	Changes  []string  `json:"changes,omitempty"`  // each of which would admit it, the least first
	Each     []WhyHost `json:"each,omitempty"`
}

// WhySum is how many hosts one constraint refused.
type WhySum struct {
	Constraint string `json:"constraint"`
	Hosts      int    `json:"hosts"`
	Example    string `json:"example"`
}

// WhyHost is one host's answer.
type WhyHost struct {
	Host       string  `json:"host"`
	Cell       string  `json:"cell"`
	Fits       bool    `json:"fits"`
	Constraint string  `json:"constraint,omitempty"`
	Message    string  `json:"message,omitempty"`
	Score      float64 `json:"score,omitempty"` // what the place costs; lower is better
}
