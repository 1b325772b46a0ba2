package machine

import (
	"slices"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/breaker"
	"github.com/grange-project/grange/internal/farm"
)

// Show adds to a view of the VM how its machine is.
func (m *Machine) Show(out *api.VM, s farm.Shape) {
	out.Applied = m.appliedView(s)
	out.BandwidthIn, out.BandwidthOut = uint64(s.Bandwidth.In), uint64(s.Bandwidth.Out)
	out.Guest = m.sight.view()
	m.Pulse.show(out)
	out.FloodWaits = m.Control.Flood.count()
	if since, on := m.Control.Flood.goesOn(time.Now()); on {
		out.Flooding = &since
	}
}

func (m *Machine) appliedView(s farm.Shape) api.Applied {
	x := m.Applied
	if m.Control.Flood.count() > 0 {
		x.Warnings = append(slices.Clone(x.Warnings),
			"its guest has sent more to the agent than a guest may, and is read slowly")
	}
	return api.Applied{Accelerator: x.Accelerator, CPUMode: x.CPUMode, CPUModel: x.CPUModel, Cache: x.Cache, IO: x.IO,
		Purpose: s.Purpose.String(), Emulated: x.Emulated, QEMUUID: x.UID, Confinement: x.Confinement,
		Warnings: x.Warnings}
}

// StateUnresponsive is shown of a VM whose guest is.
const StateUnresponsive = "running (unresponsive)"

// CountGuest counts a machine whose guest is unresponsive, floods, or sees another machine than was planned.
func CountGuest(h *api.Host, m *Machine) {
	if m == nil {
		return
	}
	if m.Pulse.IsUnresponsive() {
		h.Unresponsive++
	}
	if _, on := m.Control.Flood.goesOn(time.Now()); on {
		h.Flooding++
	}
	if len(m.sight.wrong()) > 0 {
		h.Differing++
	}
}

// HideOthers removes what a view of the host says of VMs of others.
func HideOthers(h *api.Host) {
	h.BackOffs = slices.DeleteFunc(h.BackOffs, func(b api.BackOff) bool { return b.Kind == string(breaker.User) })
	for i := range h.BackOffs {
		h.BackOffs[i].Last = ""
	}
	h.Hypervisor.Stuck = nil
}
