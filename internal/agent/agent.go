package agent

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/admission"
	"github.com/grange-project/grange/internal/agent/catalogue"
	"github.com/grange-project/grange/internal/agent/cloud"
	"github.com/grange-project/grange/internal/agent/filesystems"
	"github.com/grange-project/grange/internal/agent/leases"
	"github.com/grange-project/grange/internal/agent/lookup"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/agent/meter"
	"github.com/grange-project/grange/internal/agent/services"
	"github.com/grange-project/grange/internal/agent/starts"
	"github.com/grange-project/grange/internal/agent/transfers"
	"github.com/grange-project/grange/internal/agent/usage"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/ledger"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/sdnotify"
	"github.com/grange-project/grange/internal/subid"
	"github.com/grange-project/grange/internal/vmimage"
)

// The state of an agent is here: its parts, its VMs, their jobs, which all name each other. What each does is in the
// file of its name; New and Run, in startup.go, put them together.

// Agent is one host's agent.
type Agent struct {
	hyper    machine.Hypervisor
	images   *vmimage.Store
	machines *machine.Host
	ledger   *ledger.Ledger
	log      *slog.Logger
	version  string
	runsOn   func() string
	ready    func()

	probeAgain   func()
	allocationOf func(c Caller) *Caller // of a step

	pageMounts func() []farm.Bytes // page sizes that have a hugetlbfs

	guestFile string
	lookups   lookup.Lookups
	names     *names.Service
	subids    subid.Files
	breakers  breakers
	admission admission.Shares

	ctx  context.Context // of Run; ends with errShutdown
	jobs sync.WaitGroup

	metal   metalJobs
	checker services.Checker

	reading  sync.Mutex // held while the host is read
	hostRead time.Time

	mu      sync.Mutex
	cfg     config.Agent   // of the host's own file
	central fleet.Settings // of the server, in its place
	topo    farm.Topology
	live    map[string]*job // by job ID
	vms     map[string]*vm  // by the ID of the job that each was made for

	workers workers

	Usage  *usage.Desk      // records of what VMs have used
	Cloud  *cloud.Host      // what the server sees of this host
	Images *catalogue.Fleet // the host's copy of the fleet's catalogue; nil: none
	noLink error            // what is wrong with the link to the server; nil: nothing
	linked bool             // the link has worked, or been tried
	meter  *meter.Meter

	transfers *transfers.Transfers // of images within the fleet; nil: there is none

	claims     claims
	leases     leases.Desk
	drains     filesystems.Drains
	healing    healing
	recovery   recovery
	settings   settings
	watch      watch
	workerDesk workerDesk
}

// vm is one virtual machine of this host: what it holds, and the jobs in it. That is one job, or all tasks of one batch
// job that run on this host. It lives as long as one of them does, or as their allocation.
//
// Locks are taken in this order: the agent's, a vm's, a job's.
type vm struct {
	agent *Agent
	id    string // of the job that it was made for: its grant goes by this ID
	key   string // of the batch job whose tasks enter it; "": nobody else enters
	owner Caller // who asked for it
	image string // that it is made from
	asked string // what its first job asked for; the site's policy may have said otherwise
	bare  bool   // its first job has no command: the image's is run
	own   bool   // the agent made it for itself, to see whether VMs start here

	power  *machine.Power // whether its CPUs run
	making making

	ctx    context.Context // ends with one of the reasons in job.go
	cancel context.CancelCauseFunc
	over   chan struct{} // closed when everything is cleaned up

	mu      sync.Mutex
	changed chan struct{}   // closed and made anew at every change
	request *api.JobRequest // of the job that it was made for; nil when an earlier agent made it
	record  record
	machine *machine.Machine // nil before the first and after the last
	defined bool             // machine can be connected to
	up      bool             // its guest has spoken
	failed  error            // why it did not come up
	closed  bool             // nobody enters any more
	jobs    []*job           // in the order of arrival
	ports   []*job           // who has which job port
	home    *job             // in whose control groups QEMU is; nil: nobody's, or the allocation's
	clean   []api.Phase
	start   starts.Phases
}

// making brings a VM up: it claims the room, makes the machine, once more where that helps, and boots the guest.
type making struct {
	*vm
	kernel vmimage.Image // that it starts with; start's alone
}

// job is one caller's command. run, or resume after a restart, sees it from its entering a VM to its leaving;
// everything else only looks or asks.
type job struct {
	agent  *Agent
	id     string
	caller Caller
	vm     *vm             // that it is in, from enter on
	ctx    context.Context // from enter on; ends with one of the reasons above
	cancel context.CancelCauseFunc
	over   chan struct{} // closed when everything is cleaned up
	port   int           // number of its job port; -1: it has none yet. The vm's lock guards it
	record record        // what its VM would be, as the job asked for it; it does not change once others know the job

	mu        sync.Mutex
	changed   chan struct{} // closed and made anew at every change
	request   *api.JobRequest
	weight    atomic.Int64              // of the request in memory, in bytes, until the guest has it
	active    atomic.Pointer[time.Time] // when the user of its pool did something last; nil: not yet
	events    []api.JobEvent
	delivered int // events that a caller has been sent
	followers int
	takenOver bool // from an earlier agent: what it told the caller is not known
	handed    bool // the guest may know of it
	ended     bool // the job has ended; only a kept VM lives on
	clean     []api.Phase
}

// claims keeps on the disk what batch systems' jobs on the host have claimed.
type claims struct {
	*Agent
	claiming sync.Mutex // held while files of claims and the ledger change together
}

// recovery takes over what is on the host when the agent starts.
type recovery struct{ *Agent }

// requests makes jobs of what callers ask for, within what the site lets them have.
// All that it reads of the configuration is of one moment: a request has the rules and the networks of one file.
type requests struct {
	*Agent
	conf config.Agent
}

func (a *Agent) requests() requests { return requests{a, a.config()} }

func (a requests) config() config.Agent { return a.conf }

// settings are what the server says of the agent's configuration.
type settings struct{ *Agent }

// watch follows libvirt and what becomes of machines.
type watch struct {
	*Agent
	watching sdnotify.Loop // watchDaemon
	full     sync.Mutex    // held while a VM ends for want of disk space
}

// workers is the agent's part that belongs to workers alone.
type workers struct {
	mu        sync.Mutex // held from looking for a name and an address until the job has them
	followers map[*workerFollower]bool
	addresses farm.AddressBook
}

// workerFollower is one caller that follows workers. One that does not read is cut off: it comes again, and asks for
// all.
type workerFollower struct {
	events chan api.Worker
	cut    context.CancelFunc
}

// workerDesk makes workers, and backs off from those that fail.
type workerDesk struct{ *Agent }

// healing closes the host while VMs do not start on it, and opens it again.
type healing struct{ *Agent }

// accelerator is what VMs run on, for people; "": nobody knows.
func (a *Agent) accelerator() string {
	if a.runsOn == nil {
		return ""
	}
	return a.runsOn()
}

// vmMadeFor is the VM that was made for a job.
func (a *Agent) vmMadeFor(job string) *vm {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.vms[job]
}

func (a *Agent) byID(id string) *job {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.live[id]
}

func (a *Agent) forget(j *job) {
	a.mu.Lock()
	delete(a.live, j.id)
	a.mu.Unlock()
}

func (a *Agent) forgetVM(v *vm) {
	a.mu.Lock()
	delete(a.vms, v.id)
	a.mu.Unlock()
}

// all are the VMs of this host, and those that wait for room.
func (a *Agent) all() []*vm {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.vms))
}

// Jobs are the jobs and workers that have not ended, those that wait for room too, for the server.
func (a *Agent) Jobs() []fleet.Job {
	var all []fleet.Job
	for _, v := range a.all() {
		if !v.own {
			all = append(all, starts.Job(v.usage(), v.view(nil).State, v.waitsFor()))
		}
	}
	return starts.Bounded(all)
}
