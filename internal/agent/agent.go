package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/catalogue"
	"github.com/grange-project/grange/internal/agent/cloud"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/agent/transfers"
	"github.com/grange-project/grange/internal/allotment"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/ledger"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology"
	"github.com/grange-project/grange/internal/vmimage"
)

// Options is what an agent is made of.
type Options struct {
	Config      config.Agent
	Hypervisor  machine.Hypervisor
	Accelerator func() string // for people: "kvm", or "tcg" with the reason; nil: nobody knows
	ProbeAgain  func()        // has it found out anew, and VMs wait for that; nil: it cannot change
	Ready       func()        // called when the agent serves; nil: nobody wants to know
	Log         *slog.Logger
	Version     string
	Gate        Gate             // of this host in its batch system; nil: there is none
	Lookup      Lookup           // what batch systems know of their jobs; nil: there is nobody to ask
	Names       *names.Service   // of users and groups; nil: the host's
	Peers       cloud.Peers      // the fleet's other hosts; nil: there are none
	Server      transfers.Server // of the fleet, for images; nil: there is none
}

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

	probeAgain func()

	guestFile string
	lookups   lookups
	names     *names.Service
	breakers  breakers
	admission admission

	ctx  context.Context // of Run; ends with errShutdown
	jobs sync.WaitGroup

	metal metalJobs

	reading  sync.Mutex // held while the host is read
	hostRead time.Time

	mu      sync.Mutex
	cfg     config.Agent   // of the host's own file
	central fleet.Settings // of the server, in its place
	topo    farm.Topology
	live    map[string]*job // by job ID
	vms     map[string]*vm  // by the ID of the job that each was made for

	workers workers

	Cloud  *cloud.Host      // what the server sees of this host
	Images *catalogue.Fleet // the host's copy of the fleet's catalogue; nil: none
	noLink error            // what is wrong with the link to the server; nil: nothing

	transfers *transfers.Transfers // of images within the fleet; nil: there is none

	claims     claims
	healing    healing
	recovery   recovery
	requests   requests
	settings   settings
	watch      watch
	workerDesk workerDesk
}

// joined returns the agent with its parts.
func joined(a *Agent) *Agent {
	a.claims.Agent, a.healing.Agent, a.recovery.Agent, a.requests.Agent = a, a, a, a
	a.settings.Agent, a.watch.Agent, a.workerDesk.Agent = a, a, a
	return a
}

// New makes an agent; Run makes it work.
func New(o Options) (*Agent, error) {
	t, err := topology.Read(os.DirFS("/"))
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{o.Config.StateDir, o.Config.RunDir, filepath.Join(o.Config.RunDir, "vm")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("state of the agent: %w", err)
		}
	}
	images, err := vmimage.Open(o.Config.Areas.Images.Path)
	if err == nil {
		err = machine.CheckLocal(o.Config.Areas.Images.Path)
	}
	if err != nil {
		return nil, err
	}
	vmimage.SetQuota(images, o.Config.Areas.Images.Quota)
	a := joined(&Agent{hyper: o.Hypervisor, images: images, log: o.Log, version: o.Version, runsOn: o.Accelerator,
		probeAgain: o.ProbeAgain, ready: o.Ready, guestFile: o.Config.GuestFile, lookups: lookups{ask: o.Lookup},
		names: cmp.Or(o.Names, names.Host()), breakers: newBreakers(o.Gate), cfg: o.Config,
		topo: t, live: map[string]*job{}, vms: map[string]*vm{}})
	areas, err := machine.OpenAreas(o.Config.Areas)
	if err != nil {
		return nil, err
	}
	a.metal.read = a.readMetal
	a.ledger = ledger.New(t.Overcommitted(o.Config.MemoryOvercommit), reserve(o.Config, t), ledger.Host{
		Jobs: a.metal.running, Space: areas.Space, Reread: func() { a.readHost(rereadEvery) }})
	a.ledger.SetLimits(o.Config.Limits, o.Config.Minimum.Disk)
	a.machines = machine.NewHost(machine.Options{Hyper: a.hyper, Images: images, Ledger: a.ledger, Names: a.names,
		Log: a.log, Config: a.config, Topology: a.topology, Areas: areas})
	a.recovery.loadDrain()
	a.Images = catalogue.NewFleet(catalogue.Options{Images: vmimage.Exchange{Store: images}, Log: a.log,
		File: filepath.Join(o.Config.StateDir, "catalogue.json"), Users: a.usersOfImage,
		Cloud: func(digest string) []string { return a.Cloud.UsersOfImage(digest) }})
	a.Cloud = cloud.New(cloud.Options{Machines: a.machines, Jobs: &a.jobs, GuestFile: a.guestFile,
		Version: a.version, Accelerator: a.accelerator, Peers: o.Peers, Settings: a.settings.take, Images: a.Images,
		Admit: a.breakers.admit, Started: a.breakers.started, Failed: a.breakers.failed,
		Confines: func() bool { return allotment.Confines(allotment.Host(), a.ofThisHost) }, HasJob: a.metal.has,
		Encode: encodeCloud})
	if o.Server != nil {
		a.transfers, err = transfers.New(transfers.Options{Dir: filepath.Join(o.Config.StateDir, "transfers"),
			Files: transfers.FilesOf(images), Peers: o.Peers, Server: o.Server, Log: a.log,
			Config: func() transfers.Settings { return transfers.Settings(a.config().Transfer) }})
		a.Images.Transfers = a.transfers
	}
	return a, err
}

// accelerator is what VMs run on, for people; "": nobody knows.
func (a *Agent) accelerator() string {
	if a.runsOn == nil {
		return ""
	}
	return a.runsOn()
}

// Run takes over what runs on the host, and serves until ctx ends. VMs live on after it.
func (a *Agent) Run(ctx context.Context) error {
	unlock, err := a.lock()
	if err != nil {
		return err
	}
	defer unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	runCtx, stopJobs := context.WithCancelCause(context.WithoutCancel(ctx))
	a.ctx = runCtx
	context.AfterFunc(ctx, func() { stopJobs(errShutdown) })
	defer a.jobs.Wait()
	defer stopJobs(errShutdown)
	a.settings.load()
	if err := a.claims.load(); err != nil {
		return err
	}
	var broken error // of taking over the host
	a.jobs.Go(func() {
		if err := a.recovery.takeOverHost(); err != nil && a.ctx.Err() == nil {
			broken = err
			cancel(err)
		}
	})
	a.jobs.Go(a.watch.watchDaemon)
	a.jobs.Go(func() { a.machines.CheckUsers(a.ctx) })
	err = a.listen()
	stopJobs(errShutdown)
	a.jobs.Wait()
	for _, p := range a.machines.Areas.Pools() {
		p.Close()
	}
	return cmp.Or(broken, err)
}

// lock keeps a second agent off the same state: two ledgers would grant everything twice.
func (a *Agent) lock() (func(), error) {
	path := filepath.Join(a.config().RunDir, "agent.lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, &farm.Error{Kind: farm.Conflict, Code: CodeTwoAgents,
			Message: "another agent runs on " + filepath.Dir(path),
			Hint:    "stop it first, or give this one its own run_dir, state_dir and socket"}
	}
	return func() { f.Close() }, nil
}

func (a *Agent) config() config.Agent {
	a.mu.Lock()
	defer a.mu.Unlock()
	return withCentral(a.cfg, a.central)
}

// Reload takes over a changed configuration. What only a restart can change stays, and is logged.
func (a *Agent) Reload(c config.Agent) {
	old := a.config()
	if c.GuestFile == "" {
		c.GuestFile = old.GuestFile // found at the start
	}
	if c.Socket != old.Socket || c.SocketMode != old.SocketMode || c.StateDir != old.StateDir ||
		c.RunDir != old.RunDir || c.Libvirt != old.Libvirt || c.VMUIDs != old.VMUIDs || c.GuestFile != old.GuestFile ||
		c.Accelerator != old.Accelerator || c.Areas != old.Areas {
		a.log.Warn("some changes need a restart", "keys",
			"socket, socket_mode, state_dir, run_dir, libvirt, vm_uids, guest_file, accelerator, areas")
	}
	c.Socket, c.SocketMode, c.StateDir, c.RunDir = old.Socket, old.SocketMode, old.StateDir, old.RunDir
	c.Libvirt, c.VMUIDs, c.GuestFile, c.Accelerator = old.Libvirt, old.VMUIDs, old.GuestFile, old.Accelerator
	c.Areas = old.Areas
	a.mu.Lock()
	a.cfg = c
	t := a.topo
	a.mu.Unlock()
	a.ledger.SetTopology(t.Overcommitted(c.MemoryOvercommit), reserve(c, t))
	a.ledger.SetLimits(c.Limits, c.Minimum.Disk)
	a.log.Info("configuration reloaded")
}

// housekeep keeps the ledger true to the host, for an administrator may change pools of huge pages or take CPUs
// offline.
func (a *Agent) housekeep() {
	tick := time.NewTicker(housekeepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-a.ctx.Done():
			return
		}
		a.recovery.restoreNetworks()
		a.recovery.removeOldLogs(time.Now())
		a.claims.dropStaleClaims()
		a.readHost(0)
	}
}

// rereadEvery is how often refusals may have the host read anew: whoever asks for the impossible again and again does
// not.
const rereadEvery = time.Second

// readHost reads the host anew for the ledger, unless that was done less than the given time ago. It returns what is
// known of the host.
func (a *Agent) readHost(unless time.Duration) farm.Topology {
	a.reading.Lock()
	defer a.reading.Unlock()
	a.mu.Lock()
	known := a.topo
	a.mu.Unlock()
	if unless > 0 && time.Since(a.hostRead) < unless {
		return known
	}
	t, err := topology.Read(os.DirFS("/"))
	if err != nil {
		a.log.Error("read the host's topology", "error", err)
		return known
	}
	a.hostRead = time.Now()
	a.mu.Lock()
	a.topo = t
	c := a.cfg
	a.mu.Unlock()
	a.ledger.SetTopology(t.Overcommitted(c.MemoryOvercommit), reserve(c, t))
	return t
}

const housekeepEvery = 10 * time.Second

func reserve(c config.Agent, host farm.Topology) numa.Reserve {
	var memory farm.Bytes
	for _, n := range host.Nodes {
		memory += n.Memory
	}
	return numa.Reserve{CPUs: c.ReservedCPUs, Memory: c.ReservedOf(memory)}
}

// admit returns the job with this ID, or enters the one that is asked for: into the VM of its batch job, if there is
// one, or into one of its own.
func (a *Agent) admit(r *api.JobRequest, c Caller) (j *job, fresh bool, err error) {
	asked, judged := r.Image, digestOf(r) // the site's policy may change the image
	for {
		if j := a.byID(r.ID); j != nil {
			return j, false, nil
		}
		v := a.vmOf(c)
		if v == nil {
			if j, err = a.requests.begin(r, c); err == nil {
				j.record.Judged = judged
				v = newVM(j)
				v.asked = asked
			}
		} else {
			if j, err = a.beginIn(v, r, c); err == nil {
				j.record.Judged = judged
			}
		}
		if err != nil {
			return nil, false, err
		}
		entered, err := a.enter(v, j)
		if err != nil {
			return nil, false, err
		}
		if entered {
			if c.Batch.System != "" {
				a.jobs.Go(j.watchCaller)
			}
			return j, true, nil
		}
	}
}

// enter puts a job into a VM, which may be a new one. It reports whether that was possible: the VM may have ended
// meanwhile, or another connection of the same job, or another task of the same batch job, was quicker.
func (a *Agent) enter(v *vm, j *job) (bool, error) {
	most := a.mostJobs()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.live[j.id] != nil {
		return false, nil
	}
	if err := a.roomForLocked(j, most); err != nil {
		return false, err
	}
	if a.vms[v.id] != v {
		if a.joinable(v.key, v.uid) != nil {
			return false, nil
		}
		for other := range a.vms { // VMs are named after the start of the ID, and the caller chose it
			if vmName(other) == vmName(v.id) {
				return false, &farm.Error{Kind: farm.Conflict, Code: farm.CodeBadRequest,
					Message: "another job's ID starts like " + v.id, Hint: "choose a random ID"}
			}
		}
		if !v.enter(j) {
			return false, nil
		}
		a.vms[v.id], a.live[j.id] = v, j
		a.jobs.Go(v.run)
		return true, nil
	}
	if !v.enter(j) {
		return false, nil
	}
	a.live[j.id] = j
	return true, nil
}

// beginIn makes the job of a request whose batch job has a VM already.
func (a *Agent) beginIn(v *vm, r *api.JobRequest, c Caller) (*job, error) {
	if r.Started {
		return nil, lostUnknown()
	}
	if err := c.belongsTo(farm.BatchSystem(r.Batch)); err != nil {
		return nil, err
	}
	if err := c.mayKeep(r); err != nil {
		return nil, err
	}
	if r.Image != "" && r.Image != v.asked && r.Image != v.image {
		return nil, &farm.Error{Kind: farm.Conflict, Code: CodeOtherImage,
			Message: fmt.Sprintf("job %s has a VM of image %s here; a task of it cannot have %s", v.key, v.image,
				r.Image), Hint: "all tasks of a job on a host share one VM: ask for the same image, or for none"}
	}
	// The VM is there, but not the leave to enter it: a task may bind other directories than the first one, or ask for
	// more.
	d, err := a.requests.decide(c, r)
	if err != nil {
		return nil, err
	}
	if err := checkScript(r, v.recordNow().Shape.Memory); err != nil {
		return nil, err
	}
	known, err := a.requests.namesOf(c)
	if err != nil {
		return nil, err
	}
	j := newJob(a, r.ID, c)
	j.request = r
	j.record = record{Version: recordVersion, Job: r.ID, User: known.guestUser(c, r.Home).Name, Command: brief(r.Argv),
		Caller: c, Keep: r.Keep, OneFS: d.OneFilesystem, Gateways: d.Gateways}
	return j, nil
}

// vmOf is the VM that a job of the caller enters; nil when it gets its own.
func (a *Agent) vmOf(c Caller) *vm {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.joinable(c.Batch.Key(), c.UID)
}

func (a *Agent) joinable(key string, uid uint32) *vm {
	if key == "" {
		return nil
	}
	for _, v := range a.vms {
		if v.key == key && v.uid == uid && v.takesMore() {
			return v
		}
	}
	return nil
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

// topology is the host as it was read last.
func (a *Agent) topology() farm.Topology {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.topo
}
