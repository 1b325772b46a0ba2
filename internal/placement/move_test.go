package placement_test

import (
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placement"
)

func movable() (farm.VM, farm.Cell, farm.Host, farm.Host) {
	vm := farm.VM{Project: "web", Name: "db", Wanted: farm.Wanted{Power: farm.PowerOn},
		Shape:    farm.Shape{Purpose: farm.PurposeService},
		Observed: farm.Observed{State: farm.VMRunning, Digest: "sha256:1"}}
	h := farm.Host{ID: "1", Name: "node-1",
		Facts: farm.Facts{Capability: 2, Accelerator: "kvm", Images: []string{"sha256:1"},
			Topology: farm.Topology{CPU: farm.CPUModel{Vendor: "AuthenticAMD"}}}}
	to := h
	to.ID, to.Name = "2", "node-2"
	return vm, farm.Cell{Name: "services", Services: true}, h, to
}

func TestMayLeave(t *testing.T) {
	for want, change := range map[string]func(*farm.VM, *farm.Cell, *farm.Host){
		"":                    func(*farm.VM, *farm.Cell, *farm.Host) {},
		"does not run":        func(v *farm.VM, _ *farm.Cell, _ *farm.Host) { v.Observed.State = farm.VMStopped },
		"db does not run":     func(v *farm.VM, _ *farm.Cell, _ *farm.Host) { v.Wanted.Power = farm.PowerOff },
		"still to be done":    func(v *farm.VM, _ *farm.Cell, _ *farm.Host) { v.Wanted.Boots = 1 },
		"to be done for":      func(v *farm.VM, _ *farm.Cell, _ *farm.Host) { v.Resize = &farm.Shape{} },
		"by job slurm/17":     func(v *farm.VM, _ *farm.Cell, _ *farm.Host) { v.Reservation = "slurm/17" },
		"replaced, not moved": func(_ *farm.VM, c *farm.Cell, _ *farm.Host) { c.Services = false },
		"was made for compute": func(v *farm.VM, _ *farm.Cell,
			_ *farm.Host) {
			v.Shape.Purpose = farm.PurposeCompute
		},
		"(writeback)": func(v *farm.VM, _ *farm.Cell, _ *farm.Host) { v.Shape.Cache = "writeback" },
		"(host-passthrough)": func(v *farm.VM, _ *farm.Cell,
			_ *farm.Host) {
			v.Shape.CPUModel = "host-passthrough"
		},
		"one of its host alone": func(v *farm.VM, _ *farm.Cell,
			_ *farm.Host) {
			v.Shape.Network = farm.NetworkUser
		},
		"a release that moves none": func(_ *farm.VM, _ *farm.Cell, h *farm.Host) { h.Facts.Capability = 1 },
	} {
		vm, cell, from, _ := movable()
		change(&vm, &cell, &from)
		want = strings.Replace(want, "moves none", "moves no VMs", 1)
		says(t, want, placement.MayLeave(vm, cell, from))
	}
	for _, change := range []func(*farm.VM){func(v *farm.VM) { v.Shape.Cache = "none" },
		func(v *farm.VM) { v.Shape.CPUModel = "EPYC" }, func(v *farm.VM) { v.Shape.CPUModel = "host-model" }} {
		vm, cell, from, _ := movable()
		change(&vm)
		says(t, "", placement.MayLeave(vm, cell, from))
	}
}

func TestMayEnter(t *testing.T) {
	for want, change := range map[string]func(v *farm.VM, to *farm.Host){
		"":                       func(*farm.VM, *farm.Host) {},
		"on host node-1 already": func(_ *farm.VM, to *farm.Host) { to.ID, to.Name = "1", "node-1" },
		"and host node-2 by tcg": func(_ *farm.VM, to *farm.Host) { to.Facts.Accelerator = "tcg" },
		"of GenuineIntel":        func(_ *farm.VM, to *farm.Host) { to.Facts.Topology.CPU.Vendor = "GenuineIntel" },
		"has not the image":      func(v *farm.VM, _ *farm.Host) { v.Observed.Digest = "sha256:2" },
		"moves no VMs":           func(_ *farm.VM, to *farm.Host) { to.Facts.Capability = 1 },
	} {
		vm, _, from, to := movable()
		change(&vm, &to)
		says(t, want, placement.MayEnter(vm, from, to))
	}
}

func says(t *testing.T, want string, err error) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && (!farm.IsCode(err, placement.CodeMoveRefused) || !strings.Contains(err.Error(), want)):
		t.Errorf("%v, want %q", err, want)
	}
}
