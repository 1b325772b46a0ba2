package cloud

import (
	"context"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/vmimage"
)

// About is what a machine of a cloud VM carries beside what every machine carries. The file beside its disks has more,
// and counts: this is for people, and for a host that has lost that file.
type About struct {
	Name, Project, Owner           string
	Boots, Builds, Fresh           int
	Bridge, Network, MAC, Hostname string
	Address, Gateway               string
	DNS                            []string
	Isolated, Closed               bool
	Secured                        bool // it is in security groups
}

// Carried is what the machine of a cloud VM carries.
type Carried struct {
	ID, Name      string
	Created       time.Time
	Image, Digest string
	Shape         farm.Shape
	Plan          farm.Plan
	About
}

// carried is what the VM's machine carries. It has no job: an older agent leaves alone what it does not know.
func (r record) carried() Carried {
	w := r.Wanted
	return Carried{ID: w.ID, Name: Name(w.ID), Created: r.Created, Image: r.Image, Digest: r.Digest,
		Shape: r.Shape, Plan: r.Plan, About: About{Name: w.Name, Project: w.Project, Owner: w.Owner, Boots: w.Boots,
			Builds: r.Builds, Fresh: r.Fresh, Bridge: w.Bridge,
			Network: w.Network, MAC: w.MAC, Hostname: w.Hostname, Address: w.Address, Gateway: w.Gateway, DNS: w.DNS,
			Isolated: w.Isolated, Closed: w.Closed, Secured: w.Firewall != nil}}
}

// recordOf makes the best of what a machine carries.
func recordOf(r Carried) record {
	c := r.About
	var wall *fleet.Firewall
	if c.Secured { // nothing passes until the server says what may
		wall = &fleet.Firewall{}
	}
	return record{Version: recordVersion, Created: r.Created, Plan: r.Plan, Shape: r.Shape, Image: r.Image,
		Digest: r.Digest, Disks: true, Boots: c.Boots, Builds: c.Builds, Fresh: c.Fresh, Ran: true,
		Boot:  machine.BootID(),
		Since: time.Now(), Wanted: fleet.WantedVM{ID: r.ID, Name: c.Name, Project: c.Project, Owner: c.Owner,
			Power: string(farm.PowerOn), Boots: c.Boots, Builds: c.Builds, Fresh: c.Fresh, Image: r.Digest,
			Bridge: c.Bridge, Network: c.Network, MAC: c.MAC, Hostname: c.Hostname, Address: c.Address,
			Gateway: c.Gateway, DNS: c.DNS, Isolated: c.Isolated, Closed: c.Closed, Firewall: wall}}
}

// Load takes over cloud VMs from what lies beside their disks, until ctx ends. Whether they run is not known yet.
func (h *Host) Load(ctx context.Context) {
	h.ctx = ctx
	for _, r := range h.readRecords() {
		h.enter(r)
	}
}

// enter goes on with a VM of an earlier agent, which holds what it was given, whether it runs or not.
func (h *Host) enter(r record) *VM {
	v := newVM(h, r.Wanted.ID)
	v.record, v.wanted, v.since = r, r.Wanted, r.Since // nobody else sees it yet
	if r.Plan.VCPUs != nil && !r.Yielded {
		h.ledger.AdoptCloud(v.ID, v.holder(), r.Job, v.charge(h.Machines.ImageOf(r.Digest), r.Shape), r.Plan)
	}
	h.mu.Lock()
	h.vms[v.ID] = v
	h.mu.Unlock()
	return v
}

// TakeOver goes on with a machine of a cloud VM. One that never ran an instruction has nothing to lose,
// and goes: an earlier agent was about to start it, and so will this one.
func (h *Host) TakeOver(ctx context.Context, f hyper.Found, r Carried) bool {
	v := h.ByID(r.ID)
	if v == nil {
		h.log.Error("a vm of the server has lost its record; it goes on with what its machine carries", "vm", r.Name)
		v = h.enter(recordOf(r))
		if err := v.keep(func(*record) {}); err != nil {
			h.log.Error("record of a vm", "vm", r.Name, "error", err)
		}
	}
	m := h.Machines.NewCloud(v.ID, v.Name)
	m.KeepConsole()
	err := m.ReadApplied()
	if err != nil && f.State != hyper.Running {
		if err := h.hyper.Stop(ctx, v.ID); err != nil {
			h.log.Error("vm does not end", "vm", r.Name, "error", err)
		}
		h.Usage.Forget(v.ID)
		v.mu.Lock()
		v.record.Boot = ""
		v.mu.Unlock()
		return false
	}
	m.Applied.PID, m.Applied.Started = f.PID, f.Started
	m.Checked.Store(true)
	m.Control.Know(v.ID)
	v.guest.follow(m)
	h.Usage.GoOn(v.ID, usageOf(v), v.recordNow().Since, f.PID, f.Started)
	m.Watch()
	v.started = time.Now()
	v.mu.Lock()
	v.machine, v.state = m, farm.VMRunning
	v.mu.Unlock()
	kind := vmimage.Disk
	if image, err := h.images.Get(v.recordNow().Digest); err == nil {
		kind = image.Kind
	}
	h.Jobs.Go(func() { v.attend(m, kind) })
	return true
}

// missEnd notices, once the agent knows what runs, that the VM's machine ended while no agent saw it: with the host, or
// by itself.
func (v *VM) missEnd() {
	r := v.recordNow()
	if v.Current() == nil {
		v.host.Machines.ReleaseNetwork(v.Name, r.Shape.Network)
		if err := v.host.Machines.Areas.Cloud.Take(v.Name); err != nil {
			v.log().Error("disks of a vm keep their user", "error", err)
		}
	}
	switch {
	case v.Current() != nil || r.Boot == "":
		return
	case r.Boot != machine.BootID():
		v.log().Info("cloud VM ended with its host, and is started again")
		r.Boot = ""
	default:
		v.log().Warn("cloud VM ended while no agent saw it")
		v.ending.noteEnd(&r, "", time.Since(r.Since),
			reasonOf(&farm.Error{Kind: farm.Unavailable, Code: CodeVMEnded,
				Message: "the VM ended while nobody saw it"}))
	}
	v.mu.Lock()
	v.record = r
	v.mu.Unlock()
}
