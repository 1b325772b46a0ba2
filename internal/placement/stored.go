package placement

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// HostOf returns what placement may know of a host as the store has it: whether it is silent is not in it. Its scratch
// is what is free now.
func HostOf(h farm.Host, cell farm.Cell, networks []farm.FleetNetwork) Host {
	why, closed := Refusal(h)
	return Host{ID: h.ID, Name: h.Name, Cell: h.Cell, Labels: LabelsOf(h, cell), Refuses: why, Closed: closed,
		Topology: h.Facts.Topology, Reserve: h.Facts.Reserve, Taken: h.Facts.Taken, Images: h.Facts.Images,
		Networks: NetworksOf(h, networks), Scratch: h.Facts.ScratchFree,
		Bandwidth: h.Facts.Bandwidth, Booked: h.Facts.Booked}
}

// Refusal returns why a host takes nothing new, beside silence; "": it does. closed reports whether people said so, and
// can take it back.
func Refusal(h farm.Host) (why string, closed bool) {
	switch {
	case !h.Fenced.IsZero():
		return "it is fenced", false
	case len(h.Facts.Topology.Nodes) == 0:
		return "it has not said yet what it has", false
	case len(h.Facts.Short) > 0:
		return "it takes no more VMs: " + strings.Join(h.Facts.Short, ", "), false
	case h.Drain.Active():
		return withReason("it is being drained", h.Drain.Reason), true
	case h.Closed:
		return withReason("it is closed", h.Reason), true
	}
	return "", false
}

// LabelsOf returns the labels of a host as selectors see them: of its cell, of people, and what it is.
func LabelsOf(h farm.Host, cell farm.Cell) map[string]string {
	labels := maps.Clone(cell.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, h.Labels)
	labels["kind"], labels["cell"], labels["host"], labels["accelerator"] =
		h.Facts.Kind, h.Cell, h.Name, h.Facts.Accelerator
	set := func(label string, is bool) {
		if delete(labels, label); is {
			labels[label] = "yes"
		}
	}
	set(groupsLabel, h.Facts.FollowsFlows())
	set(displayLabel, h.Facts.Capability >= displayCapability)
	return labels
}

// Labels that people cannot give.
const (
	groupsLabel  = "security-groups" // of hosts that hold VMs to their security groups
	displayLabel = "display"         // of hosts that give VMs a display
)

// NetworksOf returns the networks that a host can carry: those whose patterns it matches, as far as it has their
// bridge or may make one, and an agent that keeps VMs apart where the network says so.
func NetworksOf(h farm.Host, networks []farm.FleetNetwork) []string {
	var names []string
	for _, n := range networks {
		mine := len(n.Hosts) == 0 || slices.ContainsFunc(n.Hosts, func(pattern string) bool {
			ok, err := path.Match(pattern, h.Name)
			return ok && err == nil
		})
		keeps := !n.Isolate && !n.Closed || h.Facts.Capability >= filterCapability
		if on := n.OnHost(); mine && keeps && (on == "" || on.CarriedBy(h.Facts.Networks)) {
			names = append(names, n.Name)
		}
	}
	return names
}

// Capabilities of the first agents that keep VMs of a network apart, and that give them a display.
const (
	filterCapability  = 4
	displayCapability = 7
)

// SameHosts reports whether the same hosts carry two networks, as far as NetworksOf looks.
func SameHosts(a, b farm.FleetNetwork) bool {
	return a.Name == b.Name && a.OnHost() == b.OnHost() && a.Isolate == b.Isolate && a.Closed == b.Closed &&
		slices.Equal(a.Hosts, b.Hosts)
}

// RequestOf returns what placement is asked for a VM, in cells, best first. Affinities of groups are by "project/name".
func RequestOf(vm farm.VM, cells []string, affinities map[string]farm.Affinity) Request {
	group := groupOf(vm)
	image, prefer := vm.Image, ""
	if vm.Digest != "" { // any host fetches it
		image, prefer = "", vm.Digest
	}
	needs := slices.Clip(vm.Needs)
	if len(vm.SecurityGroups) > 0 {
		needs = append(needs, groupsLabel)
	}
	if vm.Shape.Display {
		needs = append(needs, displayLabel)
	}
	return Request{VM: vm.ID, Project: vm.Project, Shape: vm.Shape, Cells: cells, Image: image, Prefer: prefer,
		Network: vm.Network, Needs: needs, Group: group, Affinity: affinities[group]}
}

// PlacedOf returns what a VM with a host holds. Where a host planned by itself, what it says counts.
func PlacedOf(vm farm.VM) Placed {
	plan := vm.Plan
	if len(plan.VCPUs) == 0 {
		plan = vm.Observed.Plan
	}
	return Placed{VM: vm.ID, Project: vm.Project, Host: vm.Host, Cell: vm.Cell, Group: groupOf(vm),
		Size: sizeOf(vm.Shape), Bandwidth: vm.Shape.Bandwidth, Plan: plan}
}

func groupOf(vm farm.VM) string {
	if vm.Group == "" {
		return ""
	}
	return vm.Project + "/" + vm.Group
}

// rejections are codes with which a host's reason begins when it would not have a VM that it never ran.
var rejections = []farm.Code{farm.CodeNoRoom, farm.CodeTooBig, farm.CodeBadPlan, farm.CodeBackedOff, farm.CodeNoImage,
	farm.CodeNoBridge, farm.CodeNotCarried, farm.CodeNoFilter, farm.CodeNotHeld,
	farm.CodeNoDHCP}

// MaxRejections is how many hosts may reject a VM before it is left as it is.
const MaxRejections = 5

// Rejected reports whether a VM's host would not have it, before it ever ran.
func Rejected(vm farm.VM) bool {
	o := vm.Observed
	if o.State != farm.VMFailed || o.CPUTime != 0 || o.Ready || vm.Wanted.Power == farm.PowerDeleted {
		return false
	}
	if !vm.Done() {
		return false // people have asked for more than the host has refused, and it may be trying: it would run twice
	}
	code, _, ok := strings.Cut(o.Reason, ":")
	return ok && slices.Contains(rejections, farm.Code(code))
}
