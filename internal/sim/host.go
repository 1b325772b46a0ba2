// Package sim is hosts that are not there: each speaks to a server as a real one does, and carries out what is wanted
// of it by saying so. Tests and sites that size a server use it.
package sim

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/wire"
)

// HostOptions say what a host pretends to be.
type HostOptions struct {
	Version  string
	Hardware Hardware
	Images   []string
	Networks []string      // bridges
	Delay    time.Duration // of each step of a VM; 0: at once
	Failing  float64       // share of starts that fail, 0 to 1
}

// Host is a host in memory. It is an uplink.Host.
type Host struct {
	o HostOptions

	told func(fleet.WantedList) // nil: nobody asks

	mu      sync.Mutex
	facts   fleet.Facts
	vms     map[string]*vm
	changed chan struct{}
}

// vm is a VM as the host pretends to have it.
type vm struct {
	wanted fleet.WantedVM
	is     fleet.Observed
	timer  *time.Timer // of the step under way; nil: none
}

// NewHost makes a host. Its agent is a new one each time.
func NewHost(o HostOptions) *Host {
	h := &Host{o: o, vms: map[string]*vm{}, changed: make(chan struct{})}
	h.facts = fleet.Facts{Version: o.Version, Capability: fleet.Capability, Instance: api.NewID(), Boot: api.NewID(),
		Accelerator: "kvm", Kind: o.Hardware.kind(), Topology: wire.Topology(o.Hardware.Topology()),
		ReservedMemory: uint64(2 * farm.GiB), Images: o.Images, Networks: o.Networks, ScratchFree: uint64(farm.TiB),
		Bandwidth: 25e9}
	return h
}

// newLike makes another host of the same make, which shares what never changes: there may be thousands.
func newLike(first *Host) *Host {
	h := &Host{o: first.o, facts: first.facts, vms: map[string]*vm{}, changed: make(chan struct{})}
	h.facts.Instance, h.facts.Boot = api.NewID(), api.NewID()
	return h
}

// Restart is the agent started anew, without its host: VMs stay.
func (h *Host) Restart() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.facts.Instance = api.NewID()
}

// Facts are what the host says of itself.
func (h *Host) Facts(context.Context) (fleet.Facts, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.facts
	f.Now = time.Now().UTC()
	return f, nil
}

// Observed is every VM that is here, and those wanted deleted that are gone.
func (h *Host) Observed() ([]fleet.Observed, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	vms := make([]fleet.Observed, 0, len(h.vms))
	for _, v := range h.vms {
		vms = append(vms, v.is)
	}
	return vms, h.changed
}

// Want takes over a list.
func (h *Host) Want(list fleet.WantedList) {
	if h.told != nil {
		defer h.told(list)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.order(list.Images)
	named := make(map[string]bool, len(list.VMs))
	for _, w := range list.VMs {
		named[w.ID] = true
		v, ok := h.vms[w.ID]
		if !ok {
			if v = h.made(w); v == nil {
				continue
			}
		}
		v.wanted = w
		h.step(v)
	}
	for id, v := range h.vms {
		if !named[id] && (v.is.State == string(farm.VMGone) || v.is.State == string(farm.VMFailed)) {
			delete(h.vms, id)
		}
	}
}

// order fetches and removes images, by saying so.
func (h *Host) order(orders []fleet.ImageOrder) {
	images := slices.Clone(h.facts.Images) // hosts of the same make share them
	for _, o := range orders {
		for _, digest := range o.Digests {
			images = slices.DeleteFunc(images, func(i string) bool { return i == digest })
			if o.Op == string(farm.ImageFetch) {
				images = append(images, digest)
			}
		}
	}
	if slices.Sort(images); len(orders) == 0 || slices.Equal(images, h.facts.Images) {
		return
	}
	h.facts.Images = images
	h.publish()
}

// publish notifies whoever follows Observed.
func (h *Host) publish() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// made is a VM that the host did not have. One wanted deleted is gone as it comes.
func (h *Host) made(w fleet.WantedVM) *vm {
	v := &vm{is: fleet.Observed{ID: w.ID, State: string(farm.VMStopped), Since: time.Now().UTC(), Boots: w.Boots,
		Builds: w.Builds, Plan: w.Plan}}
	h.vms[w.ID] = v
	return v
}

// step begins what is next for a VM, unless something is under way. The lock is held.
func (h *Host) step(v *vm) {
	if v.timer != nil {
		return
	}
	w, is := v.wanted, v.is
	switch {
	case w.Power == string(farm.PowerDeleted) && is.State != string(farm.VMGone):
		h.then(v, farm.VMDeleting, func() { h.set(v, farm.VMGone, "") })
	case w.Power == string(farm.PowerOff) && is.State == string(farm.VMRunning):
		h.then(v, farm.VMStopping, func() { h.set(v, farm.VMStopped, "") })
	case w.Power == string(farm.PowerOn) && (is.State == string(farm.VMStopped) || is.State == string(farm.VMRunning) &&
		(is.Boots < w.Boots || is.Builds < w.Builds)):
		h.then(v, farm.VMStarting, func() { h.start(v) })
	}
}

// then reports that a step is under way, and does it after the delay.
func (h *Host) then(v *vm, state farm.VMState, do func()) {
	if h.o.Delay == 0 {
		do()
		return
	}
	h.set(v, state, "")
	v.timer = time.AfterFunc(h.o.Delay, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		v.timer = nil
		do()
		h.step(v)
	})
}

func (h *Host) start(v *vm) {
	v.is.Boots, v.is.Builds, v.is.Plan = v.wanted.Boots, v.wanted.Builds, v.wanted.Plan
	if h.o.Failing > 0 && rand.Float64() < h.o.Failing {
		h.set(v, farm.VMFailed, "simulated: the guest did not come up")
		return
	}
	v.is.Ready = true
	h.set(v, farm.VMRunning, "")
}

func (h *Host) set(v *vm, state farm.VMState, reason string) {
	v.is.State, v.is.Reason, v.is.Since = string(state), reason, time.Now().UTC()
	if state != farm.VMRunning {
		v.is.Ready = false
	}
	h.publish()
}

// Stream says back what it is told, as a console without a guest.
func (h *Host) Stream(_ context.Context, o fleet.StreamOrder) (io.ReadWriteCloser, error) {
	h.mu.Lock()
	_, ok := h.vms[o.VM]
	h.mu.Unlock()
	if !ok {
		return nil, &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoVM,
			Message: fmt.Sprintf("VM %s does not run on this host", o.VM), Hint: "start it, and try again"}
	}
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		io.Copy(there, there)
	}()
	return here, nil
}
