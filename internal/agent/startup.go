package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/agent/catalogue"
	"github.com/grange-project/grange/internal/agent/cloud"
	"github.com/grange-project/grange/internal/agent/lookup"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/agent/transfers"
	"github.com/grange-project/grange/internal/agent/usage"
	"github.com/grange-project/grange/internal/allotment"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/journal"
	"github.com/grange-project/grange/internal/ledger"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/network"
	"github.com/grange-project/grange/internal/topology"
	"github.com/grange-project/grange/internal/transfer"
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
	Lookup      lookup.Ask       // what batch systems know of their jobs; nil: there is nobody to ask
	Comments    *usage.Comments  // where the host's batch system shows what jobs have used; nil: it does not
	Names       *names.Service   // of users and groups; nil: the host's
	Peers       cloud.Peers      // the fleet's other hosts; nil: there are none
	Server      transfers.Server // of the fleet, for images; nil: there is none
}

// New makes an agent; Run makes it work.
func New(o Options) (*Agent, error) {
	t, err := topology.Read(os.DirFS("/"))
	if err != nil {
		return nil, err
	}
	if err := machine.CheckMounts(o.Config.Areas); err != nil {
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
	receive := transfer.NewRate(0)
	a := joined(&Agent{hyper: o.Hypervisor, images: images, log: o.Log, version: o.Version, runsOn: o.Accelerator,
		probeAgain: o.ProbeAgain, ready: o.Ready, guestFile: o.Config.GuestFile, lookups: lookup.Lookups{Ask: o.Lookup},
		names: cmp.Or(o.Names, names.Host()), breakers: newBreakers(o.Gate), cfg: o.Config,
		allocationOf: allocationOf,
		pageMounts:   func() []farm.Bytes { return machine.PageMounts(os.DirFS("/")) },
		topo:         t, live: map[string]*job{}, vms: map[string]*vm{}})
	areas, err := machine.OpenAreas(o.Config.Areas)
	if err != nil {
		return nil, err
	}
	a.metal.read = a.readMetal
	a.ledger = ledger.New(t.Overcommitted(o.Config.MemoryOvercommit), reserve(o.Config, t), ledger.Host{
		Jobs: a.metal.running, Space: areas.Space, Reread: func() { a.readHost(rereadEvery) },
		Private:   func() bool { return a.config().PrivateVMs },
		Bandwidth: func() farm.Rate { return network.Carries(a.config().Network) }})
	a.ledger.SetLimits(o.Config.Limits, o.Config.Minimum.Disk)
	a.machines = machine.NewHost(machine.Options{Hyper: a.hyper, Images: images, Ledger: a.ledger, Names: a.names,
		Log: a.log, Config: a.config, Topology: a.topology, Areas: areas})
	a.Usage, err = usage.Open(usage.Options{Dir: filepath.Join(o.Config.StateDir, "usage"), Log: a.log,
		Traffic: network.Traffic, Hardware: func() string { return topology.Kind(a.topology()) }, Comments: o.Comments,
		Boot: machine.BootID, Tuning: usage.Audit, Keep: func() time.Duration { return a.config().UsageKeep }})
	if err != nil {
		return nil, err
	}
	a.meter = metering{a}.newMeter()
	a.leases.Holders, a.leases.Log = a.leaseHolders, a.log
	a.leases.Networks = func() map[string]config.SiteNetwork { return a.config().Networks }
	a.recovery.loadDrain()
	a.drains.Open(filepath.Join(o.Config.StateDir, "file-systems.json"), a.log)
	pace := func(ctx context.Context, n int) error {
		receive.Set(int64(a.config().Transfer.ReceiveRate)) // it may have been reloaded
		return receive.Wait(ctx, n)
	}
	vmimage.SetPace(images, pace)
	a.Images = catalogue.NewFleet(catalogue.Options{Images: vmimage.Exchange{Store: images}, Log: a.log,
		File: filepath.Join(o.Config.StateDir, "catalogue.json"), Users: a.usersOfImage,
		Cloud:  func(digest string) []string { return a.Cloud.UsersOfImage(digest) },
		Pace:   pace,
		Unused: func() time.Duration { return a.config().UnusedImages }})
	a.Cloud = cloud.New(cloud.Options{Machines: a.machines, Jobs: &a.jobs, GuestFile: a.guestFile,
		Version: a.version, Accelerator: a.accelerator, Peers: o.Peers, Settings: a.settings.take, Images: a.Images,
		Drains: a.drains.FromServer, FileSystems: a.hostFileSystems,
		Admit: a.breakers.admit, Started: a.breakers.started, Failed: a.breakers.failed,
		Confines: func() bool { return allotment.Confines(allotment.Host(), a.ofThisHost) }, HasJob: a.metal.has,
		Encode: encodeCloud, Meter: a.meter, Usage: a.Usage})
	if o.Server != nil {
		a.transfers, err = transfers.New(transfers.Options{Dir: filepath.Join(o.Config.Areas.Images.Path, "transfers"),
			Files: transfers.FilesOf(images), Peers: o.Peers, Server: o.Server, In: receive, Log: a.log,
			Config: func() transfers.Settings { return transfers.Settings(a.config().Transfer) }})
		a.Images.Transfers = a.transfers
	}
	return a, err
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
	a.jobs.Go(metering{a}.serve)
	a.jobs.Go(func() { a.machines.CheckUsers(a.ctx) })
	err = a.listen()
	stopJobs(errShutdown)
	a.jobs.Wait()
	for _, p := range a.machines.Areas.Pools() {
		p.Close()
	}
	return cmp.Or(broken, err, a.Usage.Close())
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

// takeOverHost learns what runs on the host, as long as that takes, and begins what depends on it. An error ends the
// agent.
func (a recovery) takeOverHost() error {
	if err := a.recover(a.ctx); err != nil {
		return err
	}
	err := a.persist(func() (err error) {
		a.machines.UID, a.machines.GID, err = a.hyper.QEMUOwner(a.ctx)
		return err
	})
	if err != nil {
		return err
	}
	a.jobs.Go(func() { a.machines.KeepVolumes(a.ctx) })
	a.jobs.Go(a.housekeep)
	a.jobs.Go(a.sweep)
	a.jobs.Go(func() { a.Usage.Run(a.ctx) })
	a.jobs.Go(a.watch.watchDisks)
	a.jobs.Go(a.serveAfterMetal)
	a.jobs.Go(a.healing.heal)
	a.jobs.Go(a.Cloud.ServeMetadata)
	a.jobs.Go(func() { a.transfers.Run(a.ctx) })
	a.jobs.Go(func() { a.Images.Run(a.ctx) })
	a.watch.followEvents()
	a.Cloud.Begin()
	return nil
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
		a.leases.Warn()
		a.readHost(0)
	}
}

const housekeepEvery = 10 * time.Second

// sweep ends what a hypervisor that died left half made. It may wait long for the hypervisor, and nobody waits for it.
func (a recovery) sweep() {
	var faults journal.Repeated
	tick := time.NewTicker(housekeepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-a.ctx.Done():
			return
		}
		err := a.hyper.Sweep(a.ctx)
		if farm.IsCode(err, hyper.CodeAway) || a.ctx.Err() != nil {
			continue
		}
		faults.Log(a.log, "sweep", err)
	}
}

// joined returns the agent with its parts.
func joined(a *Agent) *Agent {
	a.claims.Agent, a.healing.Agent, a.recovery.Agent = a, a, a
	a.settings.Agent, a.watch.Agent, a.workerDesk.Agent = a, a, a
	return a
}
