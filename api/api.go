// Package api holds the wire types of grange and a Go client for them. It imports the standard library only, so that
// anyone may use it. Fields are only ever added.
package api

import (
	"crypto/rand"
	"fmt"
	"time"
)

// JobRequest asks an agent for a fresh VM and one command in it. The caller is whoever the socket says it is.
type JobRequest struct {
	ID string `json:"id"` // chosen by the caller: a UUID. Asking again with the same ID joins the same job
	// Image is its name or digest, or where a container image is: "oci://…".
	Image string `json:"image,omitempty"`
	// Pull looks up anew what Image refers to, which otherwise is done once.
	Pull     bool    `json:"pull,omitempty"`
	Shape    string  `json:"shape,omitempty"`
	CPUs     int     `json:"cpus,omitempty"`      // vCPUs; 0: as the shape says
	Memory   uint64  `json:"memory,omitempty"`    // bytes; 0: as the shape says
	Scratch  *uint64 `json:"scratch,omitempty"`   // bytes; nil: as the shape says
	Disks    *Disks  `json:"disks,omitempty"`     // beside Scratch; nil: as the shape says
	PageSize *uint64 `json:"page_size,omitempty"` // bytes of a huge page, 0 for ordinary ones; nil: as the shape says
	Network  string  `json:"network,omitempty"`   // "none" or "user"; empty: as the shape says
	// bits a second that the VM may receive and send, on a network where it can be held to them; 0: as the shape says
	BandwidthIn  uint64 `json:"bandwidth_in,omitempty"`
	BandwidthOut uint64 `json:"bandwidth_out,omitempty"`
	// "compute" or "service"; this and what follows is as the shape says when empty
	Purpose string `json:"purpose,omitempty"`
	// "host-passthrough", "host-model", "maximum", the name of a model, or "default"
	CPUModel string `json:"cpu_model,omitempty"`
	// ThreadPolicy is "prefer", "require" or "isolate", as OpenStack's hw:cpu_thread_policy.
	ThreadPolicy string `json:"thread_policy,omitempty"`
	Emulator     string `json:"emulator,omitempty"` // "beside", or "isolate": a CPU of their own for QEMU's threads
	NUMA         string `json:"numa,omitempty"`     // "auto", "none" or a number of guest cells
	// page sizes that will do, best first, as "1G,2M,0", or "any"; goes before PageSize
	Pages string   `json:"pages,omitempty"`
	Cache string   `json:"cache,omitempty"` // cache mode of disks, in libvirt's words, or "default"
	Argv  []string `json:"argv"`            // empty: what a container image is made to run
	Env   []string `json:"env,omitempty"`
	Dir   string   `json:"dir"` // working directory in the VM
	// Raw has those texts of the request that are not UTF-8; an older agent ignores it.
	Raw *Raw `json:"raw,omitempty"`
	// DefaultDir says that nobody chose Dir: a container image's own working directory goes before it.
	DefaultDir bool   `json:"default_dir,omitempty"`
	Home       string `json:"home,omitempty"`
	// Process is the state of the caller's process that the command inherits; nil: an older caller does not tell it.
	Process *Process `json:"process,omitempty"`
	Binds   []Bind   `json:"binds,omitempty"`
	// OneOutput says that the caller's standard output and error are one file: the command's are one as well, so that
	// what it writes to both keeps its order.
	OneOutput bool  `json:"one_output,omitempty"`
	Terminal  *Size `json:"terminal,omitempty"`
	NoWait    bool  `json:"no_wait,omitempty"` // fail at once when there is no room
	Keep      bool  `json:"keep,omitempty"`    // leave the VM when the job has ended
	// Paused makes the VM and checks its pins, and lets its first instruction wait for POST /v1/vms/{vm}/resume.
	Paused bool `json:"paused,omitempty"`
	// Batch is the batch system whose job the caller says it runs in the place of. The agent refuses when it finds
	// another one, or none.
	Batch string `json:"batch,omitempty"`
	// Pool is the pool of the host that the VM is to be of; "": of none. It is ended by the pool's limits.
	Pool string `json:"pool,omitempty"`
	// Script is written into the VM before the job starts, where the batch system keeps it on the host: a spool file is
	// not bound.
	Script *Script `json:"script,omitempty"`
	// Prologs are scripts that run in the VM before the job, in this order and as its user, as Slurm's TaskProlog does:
	// lines "export NAME=value", "unset NAME" and "print text" of their output change the job's environment and go to
	// its output. One that fails ends the job with its status.
	Prologs []Script `json:"prologs,omitempty"`
	// Heartbeats says that the caller tells by POST /v1/jobs/{id}/beats that it is not stopped; without heartbeats its
	// VM is paused.
	Heartbeats bool `json:"beats,omitempty"`
	// Started says that this caller was told "ready" before: the job may have run, and must not run again in another
	// VM.
	Started bool `json:"started,omitempty"`
}

// Script is a file of the job's own.
type Script struct {
	Path    string `json:"path"` // absolute; must not exist in the VM
	Content []byte `json:"content"`
}

// Disks is what a VM has of disks beside its scratch disk. What is empty is as the shape says.
type Disks struct {
	Root uint64 `json:"root,omitempty"` // bytes of the root disk, at least the image's; its file system is grown
	// RootMode is "overlay", "clone" or "raw".
	RootMode string `json:"root_mode,omitempty"`
	// ScratchOn is where the scratch disk lies: "file", "lvm", "thin" or "tmpfs".
	ScratchOn string   `json:"scratch_on,omitempty"`
	Volumes   []Volume `json:"volumes,omitempty"` // further scratch disks
	Swap      *uint64  `json:"swap,omitempty"`    // bytes of a disk to swap to
	// MemoryPeak, in bytes, is what the job may need for a while: swap makes up for what memory lacks of it.
	MemoryPeak *uint64 `json:"memory_peak,omitempty"`
}

// Volume is a further scratch disk, empty when its VM starts.
type Volume struct {
	Path string `json:"path"` // where it is mounted in the VM
	Size uint64 `json:"size"` // bytes
	On   string `json:"on,omitempty"`
}

// NewID makes the ID of a job: a random UUID (version 4 of RFC 9562).
func NewID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Bind is a directory that the caller serves to its VM.
type Bind struct {
	Target   string `json:"target"` // in the VM
	ReadOnly bool   `json:"read_only,omitempty"`
	// Gateway is "fuse", which the caller answers itself, "virtiofs", or "auto"; "": as the site says.
	Gateway string `json:"gateway,omitempty"`
	FD      int    `json:"fd,omitempty"` // the directory as the caller has it open, for virtiofs
}

// BoundBy is how a directory comes into a VM.
type BoundBy struct {
	Target  string `json:"target"`
	Gateway string `json:"gateway"`
	Why     string `json:"why"` // for people
	// FileSystem is where the host has the directory from; nil: not known.
	FileSystem *FileSystem `json:"file_system,omitempty"`
}

// FileSystem is one that is mounted on a host, in the words of whoever mounted it.
type FileSystem struct {
	Type       string `json:"type"`
	Source     string `json:"source"`
	MountPoint string `json:"mount_point"`
	Device     string `json:"device,omitempty"`  // by its numbers, as "0:50"
	Network    bool   `json:"network,omitempty"` // a server has the files
}

// Size is that of a terminal, in characters.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// JobEvent is one line of the answer to a JobRequest. Unknown events are to be passed over.
type JobEvent struct {
	Event   string   `json:"event"`
	Message string   `json:"message,omitempty"` // waiting, warning, retry
	Code    string   `json:"code,omitempty"`    // of a warning, as CodeGuestDiffers
	Phase   *Phase   `json:"phase,omitempty"`
	VM      *VM      `json:"vm,omitempty"`
	Exit    *Exit    `json:"exit,omitempty"`
	Problem *Problem `json:"problem,omitempty"`
	Steps   *Steps   `json:"steps,omitempty"` // ready
}

// CodeGuestDiffers is the code of the warning that the guest sees other CPUs or memory than were planned: VM.Guest has
// what it sees.
const CodeGuestDiffers = "guest-differs"

// Codes of the warnings that a limit of its pool ends the VM soon, or now: then the command may end in its own way
// first, as by the HUP of a terminal that closes.
const (
	CodePoolWarning = "pool-warning"
	CodePoolEnds    = "pool-ends"
)

// Steps says how the caller of a batch job may start steps of it, for the job's script in the VM.
type Steps struct {
	Job string `json:"job"` // its ID in the batch system
	// path of the batch system's configuration; empty: where its programs look by themselves
	Conf string `json:"conf,omitempty"`
}

// The events of a job, in the order in which they come.
const (
	EventWaiting = "waiting" // for room; Message says who holds it
	EventPolicy  = "policy"  // a rule of the site set something; Message
	EventWarning = "warning" // Message
	EventPhase   = "phase"   // a phase has ended
	EventVM      = "vm"      // a VM is made; VM.JobPort may be connected to
	EventPaused  = "paused"  // the VM waits to be resumed, as its request wanted
	EventRetry   = "retry"   // that VM came to nothing, the next one follows; Message says why
	EventReady   = "ready"   // the guest is up; the job is started next, and at most once
	EventRunning = "running" // the guest has the job
	EventEnded   = "ended"   // the job has ended; Exit
	EventFailed  = "failed"  // the job was not started, for Problem
	EventLost    = "lost"    // the VM ended under a job that may have run; Problem
)

// Phase is one step of a job, with how long it took.
type Phase struct {
	Name         string  `json:"name"` // grant, image, disk, define, boot, guest, job, clean
	Milliseconds float64 `json:"ms"`
}

// Grant is what the agent would give a job of its caller: what the caller's batch job was given, and the site's policy
// on top.
type Grant struct {
	Batch    string `json:"batch,omitempty"`     // the batch system that the caller's process belongs to; empty: none
	BatchJob string `json:"batch_job,omitempty"` // its job there
	CPUs     string `json:"cpus"`                // host threads that a VM of the caller may be given
	Slots    int    `json:"slots"`               // vCPUs of a job that asks for none
	Memory   uint64 `json:"memory"`              // bytes of a guest that asks for none
	Image    string `json:"image"`
	Shape    string `json:"shape,omitempty"`
	// directories that the site wants in every batch job's VM, as `--bind` takes them
	Binds    []string `json:"binds,omitempty"`
	Home     bool     `json:"home,omitempty"` // and the user's home directory
	Requeues int      `json:"requeues"`       // how often a job whose VM was not started may be queued again
	// how long a batch job's wrapper should wait for an agent that has gone
	WaitTimeout uint64   `json:"patience_ms"`
	Reasons     []string `json:"reasons,omitempty"` // which rule of the site's policy set what
}

// Claim sets a part of a host aside for a job that its batch system runs on the host, beside VMs. root makes it when
// the job starts and releases it when the job ends; the agent releases it when the job's process or control group has
// gone, or the host has booted anew.
type Claim struct {
	Key     string `json:"key"`               // batch system and its job, as "slurm/1234"
	CPUs    string `json:"cpus,omitempty"`    // host threads that the batch system gave the job
	Count   int    `json:"count,omitempty"`   // or how many, where it says no more
	Memory  uint64 `json:"memory,omitempty"`  // bytes
	Process int    `json:"process,omitempty"` // whose end ends the claim; 0: none is named
	// below /sys/fs/cgroup, whose end ends the claim once it was there; empty: none is named
	Cgroup string `json:"cgroup,omitempty"`
	// Conflicts are in the answer: what of it a VM holds already. The claim counts all the same, for the batch system
	// has decided.
	Conflicts []string `json:"conflicts,omitempty"`
}

// Exit is how a job ended.
type Exit struct {
	Code   int           `json:"code"` // exit status; 128+signal when a signal ended it
	Signal int           `json:"signal,omitempty"`
	User   time.Duration `json:"user_ns"` // CPU time in the VM
	System time.Duration `json:"system_ns"`
	MaxRSS int64         `json:"maxrss_kib"`
	// OOMKills is how many processes the VM's kernel killed for want of memory while the job ran.
	OOMKills int `json:"oom_kills,omitempty"`
}

// JobEnd is the answer when a caller gives its VM back.
type JobEnd struct {
	Phases []Phase `json:"phases"`
}

// VM is one virtual machine.
type VM struct {
	ID      string   `json:"id"`
	Name    string   `json:"name"`
	Job     string   `json:"job"`
	Batch   string   `json:"batch,omitempty"` // batch system and its job, as "slurm/1234"
	Tasks   int      `json:"tasks,omitempty"` // tasks of that job in it now
	Purpose string   `json:"purpose"`         // job, worker or cloud
	Cloud   *CloudVM `json:"cloud,omitempty"` // of cloud VMs
	Lease   *Lease   `json:"lease,omitempty"` // on a network of the site; of jobs and workers
	// starting, running, suspended, kept; of cloud VMs as the server says it
	State   string    `json:"state"`
	Image   string    `json:"image"`
	Digest  string    `json:"digest"`
	Shape   string    `json:"shape,omitempty"`
	Pool    string    `json:"pool,omitempty"` // that it is of
	User    string    `json:"user"`
	UID     uint32    `json:"uid"`
	Command string    `json:"command"`
	Created time.Time `json:"created"`
	CPUs    int       `json:"cpus"`
	Memory  uint64    `json:"memory"`
	Scratch uint64    `json:"scratch"`
	// bits a second that it may receive and send; 0: not limited
	BandwidthIn  uint64  `json:"bandwidth_in,omitempty"`
	BandwidthOut uint64  `json:"bandwidth_out,omitempty"`
	Plan         Plan    `json:"plan"`
	Applied      Applied `json:"applied"`
	// Guest is what the guest's kernel sees; nil where it has not reported, as an older grange-guest does not.
	Guest   *GuestView `json:"guest,omitempty"`
	JobPort string     `json:"job_port,omitempty"` // unix socket of the job's streams; only its owner can connect

	// to the job's caller: binds show nothing that is mounted below them
	OneFilesystem bool      `json:"one_filesystem,omitempty"`
	Binds         []BoundBy `json:"binds,omitempty"`    // of the job that it was made for
	Services      []string  `json:"services,omitempty"` // of the host that it may use, by name
	// its guest answered last; nil: it has not, or is not asked
	Heard *time.Time `json:"heard,omitempty"`
	// its guest, which answered before, has not since, or its watchdog ran out then
	Unresponsive *time.Time `json:"unresponsive,omitempty"`
	Watchdog     *time.Time `json:"watchdog,omitempty"` // its guest's watchdog ran out
	// its guest sends more to the agent than is read of it, and goes on; since
	Flooding   *time.Time `json:"flooding,omitempty"`
	FloodWaits int        `json:"flood_waits,omitempty"` // how often the guest had to wait for that
}

// CloudVM is what a host knows of a VM that the server wants on it.
type CloudVM struct {
	Name     string `json:"name"` // as people call it
	Project  string `json:"project"`
	Owner    string `json:"owner"`
	Hostname string `json:"hostname,omitempty"`
	Address  string `json:"address,omitempty"` // with the length of its network's prefix
	MAC      string `json:"mac,omitempty"`
	Bridge   string `json:"bridge,omitempty"`
	Wanted   string `json:"wanted"`           // on, off or deleted
	Ready    bool   `json:"ready"`            // its guest has said that it is up
	Reason   string `json:"reason,omitempty"` // of a state that nobody wanted
}

// GuestView is what a guest's kernel says of its machine: it is shown and compared with the plan, and believed in
// nothing else.
type GuestView struct {
	Sockets int         `json:"sockets"` // 0: its kernel does not tell
	Cores   int         `json:"cores"`   // of a socket
	Threads int         `json:"threads"` // of a core
	Nodes   []GuestNode `json:"nodes,omitempty"`
	Pages   []uint64    `json:"pages,omitempty"`   // bytes of the huge pages that it can use
	Clock   string      `json:"clock,omitempty"`   // its clocksource: "kvm-clock", "tsc"
	Differs []string    `json:"differs,omitempty"` // where that is not as planned
}

// GuestNode is a NUMA node as a guest sees it.
type GuestNode struct {
	CPUs   string `json:"cpus"`
	Memory uint64 `json:"memory"` // without what its kernel keeps from the start
}

// Plan says where a VM's threads and memory are.
type Plan struct {
	VCPUs    []string `json:"vcpus"` // host CPU list of each vCPU
	Emulator string   `json:"emulator"`
	IOThread string   `json:"iothread"`
	Sockets  int      `json:"sockets"` // of the guest
	Cores    int      `json:"cores"`
	Threads  int      `json:"threads"`
	Cells    []Cell   `json:"cells"`
	Floating string   `json:"floating,omitempty"` // guest numbers of vCPUs that share their host CPUs with other VMs
	Extra    string   `json:"extra,omitempty"`    // host CPUs held beside those of the vCPUs
}

// Cell is one guest NUMA cell.
type Cell struct {
	VCPUs    string `json:"vcpus"`
	Memory   uint64 `json:"memory"`
	Node     int    `json:"node"`
	PageSize uint64 `json:"page_size,omitempty"`
	// Remote: the node of its CPUs has no memory, and Node is the nearest that has any.
	Remote bool `json:"remote,omitempty"`
}

// Applied says what the hypervisor did of what was planned.
type Applied struct {
	Accelerator string `json:"accelerator"`
	CPUMode     string `json:"cpu_mode"`
	CPUModel    string `json:"cpu_model,omitempty"` // where the mode is "custom"
	Cache       string `json:"cache,omitempty"`     // cache mode of the disks; empty without disks
	IO          string `json:"io,omitempty"`        // "threads" or "native"
	Purpose     string `json:"purpose,omitempty"`   // "compute" or "service"
	Emulated    string `json:"emulated,omitempty"`  // why the VM is emulated although KVM was wanted
	QEMUUID     uint32 `json:"qemu_uid,omitempty"`  // the user that its QEMU runs as, where no other VM's does
	// what confines its QEMU beside its user, for people: "AppArmor, ..."
	Confinement string   `json:"confinement,omitempty"`
	Warnings    []string `json:"warnings,omitempty"`
}

// Image is one image of a host.
type Image struct {
	Name      string    `json:"name"`
	Kind      string    `json:"kind"` // kernel or disk
	Digest    string    `json:"digest"`
	Size      uint64    `json:"size"`
	Created   time.Time `json:"created"`
	Note      string    `json:"note,omitempty"`
	Site      bool      `json:"site,omitempty"`      // the site vouches for it: workers may be made of it
	Source    string    `json:"source,omitempty"`    // what it was fetched from
	SignedBy  string    `json:"signed_by,omitempty"` // who signed its checksum
	State     string    `json:"state,omitempty"`     // "deprecated" or "withdrawn"; "" for one that is active
	Successor string    `json:"successor,omitempty"` // what to use in its place
	Reason    string    `json:"reason,omitempty"`    // why it is deprecated or withdrawn
	Pinned    bool      `json:"pinned,omitempty"`    // a purge leaves it
}

// ImageDetails are an image, what its name has meant, and who uses it.
type ImageDetails struct {
	Image
	Versions []ImageVersion `json:"versions,omitempty"` // of its name, the latest last
	VMs      []string       `json:"vms,omitempty"`      // that run from it, or are stopped and would
}

// ImageVersion is an image that a name has meant.
type ImageVersion struct {
	Digest string    `json:"digest"`
	Since  time.Time `json:"since"`
	Stored bool      `json:"stored"` // it is still on the host
}

// ImageRequest builds, imports or fetches an image.
type ImageRequest struct {
	Name   string `json:"name"`
	Path   string `json:"path,omitempty"`   // file or directory on the host
	Source string `json:"source,omitempty"` // URL or path to fetch it from; without both the micro image is built
	// Sum is the SHA-256 or SHA-512 of the file at the source. Sums is the source of a list of such, and Signature
	// that of the list's OpenPGP signature; Keyring has the keys that may sign. With a keyring and no signature the
	// list is clear-signed.
	Sum       string `json:"sum,omitempty"`
	Sums      string `json:"sums,omitempty"`
	Signature string `json:"signature,omitempty"`
	Keyring   []byte `json:"keyring,omitempty"`
	// Packages are further Debian packages of a built image.
	Packages []string `json:"packages,omitempty"`
	// Site says that the site vouches for the image: its VMs may hold the site's secrets, as the key of its batch
	// system.
	Site bool `json:"site,omitempty"`
}

// ImageMark changes what administrators say of an image. What is nil stays.
type ImageMark struct {
	State     *string `json:"state,omitempty"` // "active", "deprecated" or "withdrawn"
	Successor *string `json:"successor,omitempty"`
	Reason    *string `json:"reason,omitempty"`
	Pinned    *bool   `json:"pinned,omitempty"`
}

// ImagePurge removes images that nobody needs: those that lost their name, and named ones as it says.
type ImagePurge struct {
	UnusedSeconds int64  `json:"unused_seconds,omitempty"` // named ones, too, that no VM was started from for so long
	Free          uint64 `json:"free,omitempty"`           // and those longest unused, until so many bytes are free
	DryRun        bool   `json:"dry_run,omitempty"`        // removes nothing
}

// ImagePurged is an image that a purge removed, or would.
type ImagePurged struct {
	Names    []string  `json:"names,omitempty"`
	Digest   string    `json:"digest"`
	Size     uint64    `json:"size"` // on the disk
	LastUsed time.Time `json:"last_used"`
	Reason   string    `json:"reason"`
}

// ImageEvent is one line of the answer to an ImageRequest.
type ImageEvent struct {
	Message string   `json:"message,omitempty"`
	Image   *Image   `json:"image,omitempty"`   // last line, when it worked
	Problem *Problem `json:"problem,omitempty"` // last line, when it did not
}

// Alive is the answer of an agent that works.
type Alive struct {
	Version string `json:"version"`
}

// Host is what an agent knows of its host.
type Host struct {
	Version     string            `json:"version"`
	Accelerator string            `json:"accelerator"`
	Warnings    []string          `json:"warnings,omitempty"`
	CPU         CPU               `json:"cpu"`
	Sockets     []Socket          `json:"sockets"`
	Cores       []Core            `json:"cores"`
	Nodes       []Node            `json:"nodes"`
	L3          []string          `json:"l3"`
	Distance    [][]int           `json:"distance,omitempty"`
	Reserved    string            `json:"reserved_cpus"`
	Free        string            `json:"free_cpus"`
	Holders     map[string]string `json:"holders"` // CPU → VM name
	VMs         int               `json:"vms"`
	// Unresponsive are those whose guests answered, and do not any more, or whose watchdog ran out.
	Unresponsive int       `json:"unresponsive"`
	Flooding     int       `json:"flooding,omitempty"`  // VMs whose guests go on sending more than is read of them
	Differing    int       `json:"differing,omitempty"` // VMs whose guests see other CPUs or memory than were planned
	Waiting      int       `json:"waiting"`
	DiskTotal    uint64    `json:"disk_total"`   // bytes that disks of VMs may have
	DiskFree     uint64    `json:"disk_free"`    // of these, neither taken nor promised
	AgentMemory  uint64    `json:"agent_memory"` // resident bytes of the agent
	BackOffs     []BackOff `json:"back_offs,omitempty"`
	// why it is not known yet which VMs run here; nothing is granted meanwhile
	Recovering string     `json:"recovering,omitempty"`
	Hypervisor Hypervisor `json:"hypervisor"`
	// DHCP are the networks on which the host's own server gives VMs their addresses.
	DHCP []HostDHCP `json:"dhcp,omitempty"`
}

// HostDHCP is a host's server of DHCP, router advertisements and DNS on one network. It runs while VMs of the host are
// on the network.
type HostDHCP struct {
	Network   string   `json:"network"`
	Addresses []string `json:"addresses"` // of the server
	Runs      bool     `json:"runs"`
	VMs       int      `json:"vms"` // that it serves
}

// HostService is a service of a host for its VMs, which reach it without a network.
type HostService struct {
	Name    string `json:"name"`
	Port    int    `json:"port"`              // of a VM's own loopback
	Connect string `json:"connect"`           // where it is on the host
	Problem string `json:"problem,omitempty"` // why it takes no connection
}

// Hypervisor is how the host's libvirt does.
type Hypervisor struct {
	Away  string     `json:"away,omitempty"` // why it does not answer
	Since *time.Time `json:"since,omitempty"`
	// of the last request that needs to know what QEMU can do
	AnswerMilliseconds float64   `json:"answer_ms,omitempty"`
	Slow               string    `json:"slow,omitempty"` // why that is long each time, and what to do
	Stuck              []StuckVM `json:"stuck,omitempty"`
}

// StuckVM is a VM that has ended, and that libvirt does not let go. It holds nothing of the host, and is tried again.
type StuckVM struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	Reason   string    `json:"reason"`
	Since    time.Time `json:"since"`
	Attempts int       `json:"attempts"`
}

// Drain keeps new VMs off a host, for a change that no VM may run under. Jobs wait for its end.
type Drain struct {
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since,omitzero"`
	Holders []string  `json:"holders,omitempty"` // VMs that still run or start, as the agent answers
}

// BackOff is an image, a user or the host whose VMs keep failing to start, so that new ones are refused for a while.
type BackOff struct {
	Kind   string    `json:"kind"`           // image, user or host
	Name   string    `json:"name,omitempty"` // of the image or user
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`            // one VM is tried then
	Trial  bool      `json:"trial,omitempty"`  // one is tried now
	Closed bool      `json:"closed,omitempty"` // the host is closed in its batch system
	Last   string    `json:"last"`             // how the last one failed
}

// CPU is the host's processor.
type CPU struct {
	Vendor string   `json:"vendor"`
	Model  string   `json:"model"`
	MaxMHz int      `json:"max_mhz,omitempty"`
	Flags  []string `json:"flags,omitempty"`
}

// Socket is one processor package.
type Socket struct {
	ID   int    `json:"id"`
	CPUs string `json:"cpus"`
}

// Core is one physical core.
type Core struct {
	Socket  int    `json:"socket"`
	Node    int    `json:"node"`
	Threads string `json:"threads"`
	Kind    string `json:"kind,omitempty"` // performance or efficient, where cores differ
}

// Node is one NUMA node.
type Node struct {
	ID        int         `json:"id"`
	CPUs      string      `json:"cpus"`
	Memory    uint64      `json:"memory"`    // bytes in all
	Grantable uint64      `json:"grantable"` // bytes that the ledger can still grant
	Pages     []HugePages `json:"pages,omitempty"`
}

// HugePages is a node's pool of one page size.
type HugePages struct {
	Size      uint64 `json:"size"`
	Total     int    `json:"total"`
	Grantable int    `json:"grantable"`
	Surplus   int    `json:"surplus,omitempty"` // of Total: taken beyond the pool, and given back
}

// Problem is an error as RFC 9457 has it.
type Problem struct {
	Type   string `json:"type"`  // "grange:" and the code
	Title  string `json:"title"` // the kind
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}

func (p *Problem) Error() string { return p.Detail }
