package agent

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/vmimage"
)

// cloudRecord is what a machine of a cloud VM carries beside what every machine carries. The file beside its
// disks has more, and counts: this is for people, and for a host that has lost that file.
type cloudRecord struct {
	Name, Project, Owner  string
	Boots, Builds, Fresh  int
	Bridge, MAC, Hostname string
}

// metadata is what the VM's machine carries. It has no job: an older agent leaves alone what it does not know.
func (r fleetRecord) metadata() record {
	w := r.Wanted
	return record{Version: recordVersion, VM: w.ID, Name: fleetName(w.ID), Created: r.Created, Image: r.Image,
		Digest: r.Digest, Shape: r.Shape, Plan: r.Plan, User: w.Owner,
		Cloud: &cloudRecord{Name: w.Name, Project: w.Project, Owner: w.Owner, Boots: w.Boots, Builds: r.Builds,
			Fresh: r.Fresh, Bridge: w.Bridge, MAC: w.MAC, Hostname: w.Hostname}}
}

// fleetRecordOf makes the best of what a machine carries.
func fleetRecordOf(r record) fleetRecord {
	c := r.Cloud
	return fleetRecord{Version: fleetRecordVersion, Created: r.Created, Plan: r.Plan, Shape: r.Shape, Image: r.Image,
		Digest: r.Digest, Disks: true, Boots: c.Boots, Builds: c.Builds, Fresh: c.Fresh, Ran: true, Boot: bootID(),
		Since: time.Now(), Wanted: fleet.WantedVM{ID: r.VM, Name: c.Name, Project: c.Project, Owner: c.Owner,
			Power: string(farm.PowerOn), Boots: c.Boots, Builds: c.Builds, Fresh: c.Fresh, Image: r.Digest,
			Bridge: c.Bridge, MAC: c.MAC, Hostname: c.Hostname}}
}

// loadFleet takes over cloud VMs from what lies beside their disks. Whether they run is not known yet.
func (a *Agent) loadFleet() {
	for _, r := range a.readFleet() {
		a.enterFleet(r)
	}
}

// enterFleet goes on with a VM of an earlier agent, which holds what it was given, whether it runs or not.
func (a *Agent) enterFleet(r fleetRecord) *fleetVM {
	v := newFleetVM(a, r.Wanted.ID)
	v.record, v.wanted, v.since = r, r.Wanted, r.Since // nobody else sees it yet
	if r.Plan.VCPUs != nil && !r.Yielded {
		a.ledger.AdoptCloud(v.id, v.holder(), r.Job, v.charge(a.imageOf(r.Digest), r.Shape), r.Plan)
	}
	a.fleet.mu.Lock()
	a.fleet.vms[v.id] = v
	a.fleet.mu.Unlock()
	return v
}

// takeOverFleet goes on with a machine of a cloud VM. One that never ran an instruction has nothing to lose,
// and goes: an earlier agent was about to start it, and so will this one.
func (a *Agent) takeOverFleet(ctx context.Context, f hyper.Found, r record) bool {
	v := a.fleetByID(r.VM)
	if v == nil {
		a.log.Error("a vm of the server has lost its record; it goes on with what its machine carries", "vm", r.Name)
		v = a.enterFleet(fleetRecordOf(r))
		if err := v.keep(func(*fleetRecord) {}); err != nil {
			a.log.Error("record of a vm", "vm", r.Name, "error", err)
		}
	}
	m := a.newMachine(v.id, v.name)
	m.made, m.console.log = true, newConsoleLog(filepath.Join(m.disks, consoleFile))
	text, err := os.ReadFile(m.path(appliedFile))
	if err == nil {
		err = json.Unmarshal(text, &m.applied)
	}
	if err != nil && f.State != hyper.Running {
		if err := a.hyper.Stop(ctx, v.id); err != nil {
			a.log.Error("vm does not end", "vm", r.Name, "error", err)
		}
		v.mu.Lock()
		v.record.Boot = ""
		v.mu.Unlock()
		return false
	}
	m.applied.PID, m.applied.Started = f.PID, f.Started
	m.checked.Store(true)
	m.control.know(v.id)
	v.follow(m)
	m.watch()
	v.started = time.Now()
	v.mu.Lock()
	v.machine, v.state = m, farm.VMRunning
	v.mu.Unlock()
	kind := vmimage.Disk
	if image, err := a.images.Get(v.recordNow().Digest); err == nil {
		kind = image.Kind
	}
	a.jobs.Go(func() { v.attend(m, kind) })
	return true
}

// missEnd notices, once the agent knows what runs, that the VM's machine ended while no agent saw it: with the host, or
// by itself.
func (v *fleetVM) missEnd() {
	r := v.recordNow()
	if v.current() == nil {
		v.agent.releaseNetwork(v.name, r.Shape.Network)
		if err := v.agent.disks.Take(v.name); err != nil {
			v.log().Error("disks of a vm keep their user", "error", err)
		}
	}
	switch {
	case v.current() != nil || r.Boot == "":
		return
	case r.Boot != bootID():
		v.log().Info("cloud VM ended with its host, and is started again")
		r.Boot = ""
	default:
		v.log().Warn("cloud VM ended while no agent saw it")
		v.noteEnd(&r, "", time.Since(r.Since),
			reasonOf(&farm.Error{Kind: farm.Unavailable, Code: CodeVMEnded,
				Message: "the VM ended while nobody saw it"}))
	}
	v.mu.Lock()
	v.record = r
	v.mu.Unlock()
}
