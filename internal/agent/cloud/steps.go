package cloud

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/agent/meter"
	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/breaker"
	"github.com/grange-project/grange/internal/disk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/vmimage"
	"github.com/grange-project/grange/internal/wire"
)

// The steps of a cloud VM. Each leaves the record true to what is there, or says less than there is: the next
// one, perhaps of the next agent, finds the rest by its name and makes it again or removes it.

// limits of one step; the hypervisor has its own for each call.
const (
	makeLimit = 5 * time.Minute
	endLimit  = time.Minute
	eventWait = 2 * time.Second // for a hypervisor to say how a machine ended
)

// wantedShape is the shape of a VM that the server wants, on this host's network for its network.
func (h *Host) wantedShape(w fleet.WantedVM) (farm.Shape, error) {
	shape, err := wire.ParseShape(w.Shape)
	n := hostNetwork(w)
	if err != nil {
		return shape, err
	}
	if n != "" {
		shape.Network = n
		if err := shape.Validate(); err != nil {
			return shape, err
		}
	}
	if err := shape.CheckBandwidth(); err != nil {
		return shape, err
	}
	return shape, h.Machines.CheckNetwork(n)
}

// hostNetwork is what the VM's network is on its host; "": it has none.
func hostNetwork(w fleet.WantedVM) farm.Network {
	if w.Bridge != "" {
		return farm.NetworkBridge(w.Bridge)
	}
	return farm.Network(w.Network)
}

// build gives the VM its claim, and settles what its disks are. A VM that runs is looked at only: if there is no room
// for what it is to become, it stays what it is.
func (v *VM) build() error {
	r := v.recordNow()
	w := r.Wanted
	shape, err := v.host.wantedShape(w)
	if err != nil {
		return err
	}
	planner, err := v.host.planner(shape, w.Plan)
	if err != nil {
		return err
	}
	if v.Current() != nil {
		charge := v.charge(v.host.Machines.ImageOf(r.Digest), shape)
		if err := v.host.ledger.CheckCloud(v.ID, w.Job, charge, planner); err != nil {
			return err
		}
		return v.ending.stop()
	}
	fresh, image := r.fresh(), v.host.Machines.ImageOf(r.Digest)
	if fresh {
		if image, err = fetchImage(v, w); err != nil {
			return noSuchImage(w.Image, err)
		}
		volumes := machine.VolumesOf(v.host.config().Areas.Cloud)
		err := errors.Join(image.CheckSystem("a cloud VM"), machine.CheckRoot(image, shape), volumes.Check(shape))
		if err != nil {
			return err
		}
	}
	if !r.Ran {
		if err := v.host.Machines.Refusal(); err != nil {
			return err
		}
	}
	v.is(farm.VMStarting, "")
	v.awaitJob(w.Job)
	plan, err := v.host.ledger.ClaimCloud(v.ID, v.holder(), w.Job, v.charge(image, shape), planner)
	if err != nil {
		return err
	}
	err = v.keep(func(r *record) {
		r.Plan, r.Shape, r.Job, r.Yielded, r.Builds, r.Refused, r.Reason = plan, shape, w.Job, false, w.Builds, nil, ""
		if fresh {
			r.Fresh, r.Image, r.Digest, r.Disks = w.Fresh, image.Name, image.Digest, false
		}
	})
	if err != nil && (r.Plan.VCPUs == nil || r.Yielded) {
		v.host.ledger.Release(v.ID)
	} else if err != nil {
		v.host.ledger.AdoptCloud(v.ID, v.holder(), r.Job, v.charge(v.host.Machines.ImageOf(r.Digest), r.Shape),
			r.Plan)
	}
	return err
}

// yield gives the claim of a VM back whose place its batch system has taken away. Its disks stay, and with them the
// record of what it had.
func (v *VM) yield() error {
	v.host.ledger.Release(v.ID)
	v.log().Info("cloud VM has lost its place in the batch system")
	return v.keep(func(r *record) { r.Job, r.Yielded = "", true })
}

// WaitTimeout with a batch job that its system has started, and that has not come to this host: a prolog may run before
// it.
const (
	jobWait = 30 * time.Second
	jobLook = 50 * time.Millisecond
)

// awaitJob waits until the batch job that holds the VM's place can be seen, where the batch system confines its jobs:
// the VM is to go on the CPUs that the job was given, and others are other jobs'. One that never comes is done without.
func (v *VM) awaitJob(key string) {
	h := v.host
	if !strings.HasPrefix(key, string(farm.Slurm)+"/") || !h.Confines() {
		return
	}
	limit, look := time.After(jobWait), time.NewTicker(jobLook)
	defer look.Stop()
	for !h.HasJob(key) {
		v.is(farm.VMStarting, "waits for job "+key+" to begin here")
		if w, _ := v.newest(); w.Job != key || farm.Power(w.Power) == farm.PowerDeleted {
			return
		}
		select {
		case <-look.C:
		case <-limit:
			v.log().Warn("the batch job that holds a vm's place is not seen here; the vm goes where there is room")
			return
		case <-h.ctx.Done():
			return
		}
	}
}

// holder names the VM for people.
func (v *VM) holder() string {
	w := v.recordNow().Wanted
	return v.host.Machines.Holder(v.Name, w.Owner, w.Project+"/"+w.Name)
}

func noSuchImage(name string, err error) error {
	if !farm.IsCode(err, farm.CodeNoImage) {
		return err
	}
	return &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoImage,
		Message: fmt.Sprintf("image %q is not on this host", name),
		Hint:    "build or import it here, or have the VM placed elsewhere", Err: nil}
}

// start makes the VM's machine, with disks if it has none, and lets it run.
func (v *VM) start() (err error) {
	v.is(farm.VMStarting, "")
	h := v.host
	select {
	case h.starts <- struct{}{}:
		defer func() { <-h.starts }()
	case <-h.ctx.Done():
		return context.Cause(h.ctx)
	}
	if err := h.Machines.Refusal(); err != nil {
		return err
	}
	r := v.recordNow()
	ticket, err := h.Admit(breaker.Start{Image: r.Image, User: r.Wanted.Owner, Private: h.config().PrivateVMs})
	if err != nil {
		return err
	}
	v.mu.Lock()
	v.guest.ticket = ticket
	v.mu.Unlock()
	ctx, cancel := context.WithTimeout(h.ctx, makeLimit)
	defer cancel()
	m := h.Machines.NewCloud(v.ID, v.Name)
	m.KeepConsole()
	v.guest.follow(m)
	began := time.Now()
	image, err := v.launch(ctx, m)
	err = disk.NoSpace(err)
	h.Meter.Start(meter.Cloud, err)
	if err == nil {
		h.Meter.Phase(meter.Cloud, time.Since(began))
		v.started = time.Now()
		v.update(func() { v.machine = m })
		h.Jobs.Go(func() { v.attend(m, image.Kind) })
		return nil
	}
	m.Unwatch()
	h.Meter.Failed(err)
	v.guest.settleTicket(machine.BlameFor(err), machine.FirstLine(err))
	err = errors.Join(err, v.ending.kill(m))
	h.Usage.End(v.ID, api.EndedStopped)
	return err
}

// launch goes from what lies on the disk to a machine that runs.
func (v *VM) launch(ctx context.Context, m *machine.Machine) (vmimage.Image, error) {
	h := v.host
	image, release, err := h.images.Acquire(v.recordNow().Digest)
	if err != nil {
		return image, noSuchImage(v.recordNow().Image, err)
	}
	defer release() // the record keeps it from here on
	r := v.recordNow()
	spec, err := v.readyMachine(ctx, m, image)
	if err != nil {
		return image, err
	}
	m.Control.Know(v.ID)
	err = h.Machines.Define(ctx, m, spec, networkVM(m.Name, r), v.ID, func(applied hyper.Applied) error {
		m.Applied = applied
		return nil
	})
	if err != nil {
		return image, err
	}
	v.mu.Lock()
	v.told = false
	v.mu.Unlock()
	// Before the first instruction: whoever finds the file knows that there may have been one.
	err = v.keep(func(n *record) {
		n.Ran, n.Boot, n.Boots, n.Halt, n.Since = true, machine.BootID(), r.Wanted.Boots, haltNone, time.Now()
	})
	if err != nil {
		return image, err
	}
	h.Usage.Begin(v.ID, usageOf(v), m.Applied.PID, m.Applied.Started)
	if err := m.Run(func() error { return h.hyper.Resume(ctx, m.ID) }); err != nil {
		return image, err
	}
	v.log().Info("cloud VM runs", "project", r.Wanted.Project, "name", r.Wanted.Name, "boots", r.Wanted.Boots,
		"builds", r.Builds)
	return image, nil
}

// readyMachine makes all that a machine needs beside itself: disks where there are none, a directory for sockets, a
// user.
func (v *VM) readyMachine(ctx context.Context, m *machine.Machine,
	image vmimage.Image) (spec hyper.Machine, err error) {
	if err := v.makeDisks(ctx, m, image); err != nil {
		return spec, err
	}
	if err := os.RemoveAll(m.Sockets); err != nil {
		return spec, err
	}
	if err := os.Mkdir(m.Sockets, 0o711); err != nil {
		return spec, fmt.Errorf("directory for sockets: %w", err)
	}
	if m.User, err = v.host.Machines.TakeUser(ctx, m.Name, 0); err != nil {
		return spec, err
	}
	r := v.recordNow()
	if spec, err = v.spec(m, r, image); err != nil {
		return spec, err
	}
	if spec.Display != "" {
		if err := m.MakeDisplay(); err != nil {
			return spec, err
		}
	}
	vm := networkVM(m.Name, r)
	if spec.Card, err = v.host.Machines.NetworkCard(ctx, vm); err != nil {
		return spec, err
	}
	if err := m.Pool().Attach(m.Name, r.Shape.ScratchDisks()); err != nil {
		return spec, err
	}
	return spec, v.host.Machines.Areas.Cloud.Give(m.Name, m.User.UID, m.User.GID)
}

// spec is the machine as the hypervisor is to make it. Its ID is the VM's, so there can never be two of them on one
// host, and its guest sees the same system UUID at every start.
func (v *VM) spec(m *machine.Machine, r record, image vmimage.Image) (hyper.Machine, error) {
	spec := hyper.Machine{ID: v.ID, Name: v.Name, Plan: r.Plan, Console: m.Path("console"), Reboots: true,
		Purpose: r.Shape.Purpose, CPUModel: r.Shape.CPUModel, Cache: r.Shape.Cache,
		Tuning: v.host.Machines.DiskTuning(r.Shape.Purpose), UID: m.User.Own,
		Group: m.User.Group, Watchdog: machine.HasWatchdog(v.host.config().Heartbeat, image),
		Ports: []hyper.Port{{Name: guest.ControlPort, Path: m.Path(guest.ControlPort)},
			{Name: guest.JobPort(0), Path: m.Path(guest.JobPort(0))}}}
	if spec.Purpose == farm.PurposeService {
		spec.Move = m.MoveSockets()
	}
	if r.Shape.Display {
		spec.Display = m.DisplaySocket()
	}
	if image.Kind == vmimage.Kernel {
		spec.Boot = hyper.Boot{Kernel: image.Kernel(), Initrd: image.Initrd(), Cmdline: image.Cmdline}
	} else {
		spec.Boot.UEFI = image.Firmware == vmimage.UEFI
		path := filepath.Join(m.Disks, disk.SeedFile)
		if err := removeDisks(m.Disks, func(name string) bool { return name == disk.SeedFile }); err != nil {
			return spec, err
		}
		seed, err := seedOf(r.Wanted, v.host.GuestFile)
		if err != nil {
			return spec, err
		}
		if err := seed.WriteFile(path); err != nil {
			return spec, err
		}
		spec.Disks = []hyper.Disk{machine.RootDisk(m, image, r.Shape), {Serial: "seed", Path: path, Format: "raw", ReadOnly: true, CDROM: true}}
	}
	spec.Disks = append(spec.Disks, machine.ScratchDisks(m, r.Shape)...)
	var err error
	spec.Metadata, err = v.host.Encode(r.carried())
	return spec, err
}

// makeDisks makes the VM's disks, once: what a cut-short attempt left is removed first. On a full image that is an
// overlay, which keeps all that the guest writes; an image in memory keeps nothing but what is on scratch.
func (v *VM) makeDisks(ctx context.Context, m *machine.Machine, image vmimage.Image) error {
	r := v.recordNow()
	if r.Disks {
		return nil
	}
	if err := removeDisks(m.Disks, func(name string) bool {
		return name != disk.SeedFile && disk.IsDisk(name)
	}); err != nil {
		return err
	}
	var made []string
	if image.Kind != vmimage.Kernel {
		root, err := v.host.Machines.MakeRoot(ctx, m, image, r.Shape)
		if err != nil {
			return err
		}
		made = append(made, root.Path)
	}
	scratch, err := v.host.Machines.MakeScratch(ctx, m, r.Shape)
	if err != nil {
		return err
	}
	for _, d := range scratch {
		made = append(made, d.Path)
	}
	for _, path := range made {
		// files, too: what the record says is whole must be so after a power cut
		if err := atomicfile.SyncDir(path); err != nil {
			return err
		}
	}
	return v.keep(func(r *record) { r.Disks = true })
}

// ending ends a VM's machine, and notes how it ended.
type ending struct{ *VM }

// remove leaves nothing of the VM on the host.
func (v *VM) remove() error {
	m := v.Current()
	if m == nil {
		m = v.host.Machines.NewCloud(v.ID, v.Name)
	}
	if err := v.ending.kill(m); err != nil {
		return err
	}
	v.guest.settleTicket(breaker.Nobody, "")
	v.ending.leave()
	if err := v.host.removeFiles(m); err != nil {
		return &farm.Error{Kind: farm.Internal, Code: farm.CodeDiskTool, Message: "files of VM " + v.Name + " stay",
			Hint: "see the agent's log", Err: err}
	}
	v.host.ledger.Release(v.ID)
	v.log().Info("cloud VM deleted")
	v.update(func() {
		w := v.record.Wanted
		v.record = record{Boots: v.record.Boots, Builds: v.record.Builds, Out: v.record.Out}
		v.record.Wanted.ID, v.record.Wanted.Power = w.ID, w.Power
	})
	v.is(farm.VMGone, "")
	return nil
}

// attend is with a machine while it runs: it gives the guest its job whenever the guest comes up, and learns whether it
// has. Both cost others: the job brings the user data with it, and news goes to the server and to all who watch. So a
// guest gets them at a pace, and what it says faster is not queued: the newest counts.
func (v *VM) attend(m *machine.Machine, kind vmimage.Kind) {
	silent := time.After(v.host.config().BootTimeout)
	gives, news := machine.NewPace(5), machine.NewPace(10)
	for given := 0; ; {
		heard := m.Control.Now(v.ID)
		comes, state := heard.Comes, heard.State
		if heard.Gone {
			v.poke()
			return
		}
		var later <-chan time.Time
		now := time.Now()
		switch {
		case comes > given && gives.Wait(now) > 0:
			later = time.After(gives.Wait(now))
		case comes > given:
			gives.Take(now, 1)
			given = comes
			v.guest.give(m, kind)
			continue
		case !v.guest.isNews(state):
		case news.Wait(now) > 0:
			later = time.After(news.Wait(now))
		default:
			news.Take(now, 1)
			v.guest.report(state)
		}
		select {
		case <-heard.Changed:
		case <-later:
		case <-silent:
			v.guest.tooSilent(kind)
		case <-m.Done:
			return
		}
	}
}
