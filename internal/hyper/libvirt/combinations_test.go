package libvirt

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"libvirt.org/go/libvirtxml"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// combinations calls f with every combination of what a shape may ask of the domain, and with plans of each sort.
func combinations(t *testing.T, f func(name string, h host, m hyper.Machine)) {
	t.Helper()
	pair := []farm.CPUSet{farm.NewCPUSet(4), farm.NewCPUSet(5)}
	pool := []farm.CPUSet{farm.NewCPUSet(2, 3), farm.NewCPUSet(2, 3)}
	cell := func(node int, size farm.Bytes, vcpus ...int) farm.GuestCell {
		return farm.GuestCell{VCPUs: farm.NewCPUSet(vcpus...), Memory: 2 * farm.GiB, Node: node, PageSize: size}
	}
	plans := map[string]farm.Plan{
		"pinned": {VCPUs: pair, Emulator: farm.NewCPUSet(0), IOThread: farm.NewCPUSet(0),
			Cells: []farm.GuestCell{cell(1, 0, 0, 1)}},
		"floating": {VCPUs: pool, Floating: farm.NewCPUSet(0, 1), Cells: []farm.GuestCell{cell(0, 0, 0, 1)}},
		"mixed": {VCPUs: []farm.CPUSet{pair[0], pool[0]}, Floating: farm.NewCPUSet(1), Emulator: farm.NewCPUSet(0),
			Cells: []farm.GuestCell{cell(0, 2*farm.MiB, 0, 1)}},
		"cells": {VCPUs: pair, Emulator: farm.NewCPUSet(0),
			Cells: []farm.GuestCell{cell(0, farm.GiB, 0), cell(1, 0, 1)}},
	}
	near := map[int]map[int]int{0: {0: 10, 1: 21}, 1: {0: 21, 1: 10}}
	for planned, plan := range plans {
		plan.Guest = farm.GuestTopology{Sockets: 1, Cores: 2, Threads: 1}
		for _, accel := range []Accelerator{KVM, TCG} {
			for _, purpose := range []farm.Purpose{farm.PurposeCompute, farm.PurposeService} {
				for _, model := range []string{"", passthrough, hostModel, maximum, "Haswell-noTSX"} {
					for i, cache := range []string{"", "writeback", "none", "writethrough", "directsync", "unsafe"} {
						m := hyper.Machine{ID: "1a2b3c4d-0000-4000-8000-000000000000", Name: "grange-1a2b3c4d",
							Plan: plan, Purpose: purpose, CPUModel: model, Cache: cache,
							Disks: []hyper.Disk{{Serial: "root", Path: "/r.qcow2", Format: "qcow2"},
								{Serial: "seed", Path: "/s.iso", Format: "raw", CDROM: true}}}
						if m.Card = (hyper.Card{}); i%2 == 0 {
							m.Card.Type, m.Boot = hyper.UserCard, hyper.Boot{Kernel: "/k", Initrd: "/i",
								Cmdline: "quiet"}
						}
						f(fmt.Sprintf("%s-%s-%s-%s-%s", planned, accel, purpose, model, cache),
							host{accel: accel, numa: i%3 != 0, distance: near, hints: i%2 == 0}, m)
					}
				}
			}
		}
	}
}

// TestCombinations: what libvirt or QEMU would refuse, or a guest be misled by, is in none of the domains; and all keep
// the schema.
func TestCombinations(t *testing.T) {
	dir := t.TempDir()
	var files []string
	combinations(t, func(name string, h host, m hyper.Machine) {
		text, applied, err := h.domain(m)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		files = append(files, filepath.Join(dir, name+".xml"))
		if err := os.WriteFile(files[len(files)-1], []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		var d libvirtxml.Domain
		if err := d.Unmarshal(text); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, wrong := range wrongIn(d, h, m, applied) {
			t.Errorf("%s: %s\n%s", name, wrong, text)
		}
	})
	const schema = "/usr/share/libvirt/schemas/domain.rng"
	if _, err := os.Stat(schema); err != nil {
		t.Skip("skip schema: libvirt's (libvirt-common) is not installed")
	}
	for batch := range slices.Chunk(files, 100) {
		if out, err := exec.Command("xmllint",
			append([]string{"--noout", "--relaxng", schema}, batch...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// wrongIn returns what is wrong with a domain.
func wrongIn(d libvirtxml.Domain, h host, m hyper.Machine, applied hyper.Applied) (out []string) {
	check := func(fine bool, what string) {
		if !fine {
			out = append(out, what)
		}
	}
	floats := !m.Plan.Floating.Empty()
	for _, disk := range d.Devices.Disks {
		direct := disk.Driver.Cache == "none" || disk.Driver.Cache == "directsync"
		check(direct == (disk.Driver.IO == "native"), "native I/O wants direct I/O, and gains by it")
		check(disk.Driver.Cache == applied.Cache && disk.Driver.IO == applied.IO, "it is not what is told")
		check(disk.ReadOnly == nil ||
			disk.Driver.Discard == "", "nothing is discarded of a disk that cannot be written")
		check(*disk.Driver.IOThread <= d.IOThreads, "the I/O thread does not exist")
	}
	dedicated := d.Features.KVM != nil && d.Features.KVM.HintDedicated != nil
	check(dedicated == (h.accel == KVM && !floats && (h.hints || d.CPU.Mode == passthrough)),
		"the guest is told that CPUs are its own just when they are, and libvirt lets us")
	merged := d.MemoryBacking == nil || d.MemoryBacking.MemoryNosharepages == nil
	check(!merged || m.Purpose == farm.PurposeService && m.Plan.Floating.Len() == len(m.Plan.VCPUs),
		"memory that the VM has for good may be merged with a neighbour's")
	check(d.CPU.Mode != custom || d.CPU.Match == "exact" && d.CPU.Model.Fallback == "forbid", "a model may be another")
	check(d.CPU.Mode == custom || d.CPU.Model == nil, "a mode has a model")
	check(h.accel == KVM || d.CPU.Mode == maximum && d.Features.KVM == nil &&
		d.Type == "qemu", "emulation is asked for what KVM does")
	check(d.NUMATune != nil == h.numa, "memory is bound where it can be")
	for _, cell := range d.CPU.Numa.Cell {
		check(len(m.Plan.Cells) < 2 || cell.Distances != nil && len(cell.Distances.Siblings) == len(m.Plan.Cells),
			"a cell lacks distances")
	}
	check(d.CPUTune.EmulatorPin != nil == !m.Plan.Emulator.Empty() && len(d.CPUTune.VCPUPin) == len(m.Plan.VCPUs),
		"pins are not the plan's")
	return out
}
