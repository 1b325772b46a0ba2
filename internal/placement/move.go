package placement

import (
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// CodeMoveRefused is the code of a VM that cannot be moved while it runs: at all, or to a host.
const CodeMoveRefused farm.Code = "move-refused"

// movesFrom is the fleet.Capability of agents that move VMs.
const movesFrom = 2

func refuseMove(hint, format string, args ...any) error {
	return &farm.Error{Kind: farm.Conflict, Code: CodeMoveRefused, Message: fmt.Sprintf(format, args...), Hint: hint}
}

const anew = "make a new VM in place of it, and delete this one: `grange vm create`, `grange vm delete`"

// MayLeave reports why a VM cannot leave its host while it runs; nil: it may. Compute VMs are replaced, not moved: what
// makes them fast, the whole processor of their host and its page cache for their disks, ties them to it.
func MayLeave(v farm.VM, c farm.Cell, from farm.Host) error {
	name := v.Project + "/" + v.Name
	network, _ := v.Shape.Network.Kind()
	switch {
	case v.Wanted.Power != farm.PowerOn || v.Observed.State != farm.VMRunning:
		return refuseMove("start it, and wait until it runs; a VM that is stopped has its disks on its host alone",
			"VM %s does not run", name)
	case !v.Done() || v.Resize != nil:
		return refuseMove("wait until its host has carried that out", "something else is still to be done for VM %s",
			name)
	case v.Reservation != "":
		return refuseMove(anew, "VM %s has its place by job %s of the batch system of cell %s, which places its VMs",
			name, v.Job(), c.Name)
	case !c.Services:
		return refuseMove(anew, "VM %s is in cell %s, whose VMs are compute: replaced, not moved", name, c.Name)
	case v.Shape.Purpose != farm.PurposeService:
		return refuseMove(anew+", with a shape whose purpose is service",
			"VM %s was made for compute, and not as a service: it is replaced, not moved", name)
	case v.Shape.Cache != "" && v.Shape.Cache != "none" && v.Shape.Cache != "directsync":
		return refuseMove(anew+", with a shape whose cache is none",
			"the disks of VM %s are cached by its host (%s), which precludes migration", name, v.Shape.Cache)
	case v.Shape.CPUModel == "host-passthrough" || v.Shape.CPUModel == "maximum":
		return refuseMove(anew+", with a shape whose CPU model is host-model, or a name",
			"VM %s was shown the whole processor of its host (%s)", name, v.Shape.CPUModel)
	case network.Local:
		return refuseMove(anew+", with a network of the fleet", "the network of VM %s is one of its host alone", name)
	}
	return agentMoves(from)
}

func agentMoves(h farm.Host) error {
	if h.Facts.Capability < movesFrom {
		return refuseMove("update grange on it", "the agent of host %s (%s) is of a release that moves no VMs", h.Name,
			h.Facts.Version)
	}
	return nil
}

// MayEnter reports why a VM that runs cannot go from a host to another one, beside what Why says of any VM: what one
// processor has, and the other lacks; nil: nothing is known that forbids it. The target has the last word.
func MayEnter(v farm.VM, from, to farm.Host) error {
	if err := agentMoves(to); err != nil {
		return err
	}
	a, b := from.Facts.Topology.CPU, to.Facts.Topology.CPU
	switch {
	case from.ID == to.ID:
		return refuseMove("name another host", "it is on host %s already", to.Name)
	case from.Facts.Accelerator != to.Facts.Accelerator:
		return refuseMove("see why KVM is not used: `grange host show`", "host %s runs VMs by %s, and host %s by %s",
			from.Name, from.Facts.Accelerator, to.Name, to.Facts.Accelerator)
	case a.Vendor != b.Vendor:
		return refuseMove("name a host of the same make", "the processor of host %s is of %s, that of %s of %s",
			to.Name, b.Vendor, from.Name, a.Vendor)
	case v.Observed.Digest != "" && v.Observed.Digest != v.Digest &&
		!slices.Contains(to.Facts.Images, v.Observed.Digest):
		return refuseMove("`grange image import` on that host brings it",
			"host %s has not the image that the VM was made from, %s", to.Name, v.Observed.Digest)
	}
	return nil
}
