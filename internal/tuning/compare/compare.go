// Package compare returns what keeps the VMs of one host from moving to another one. It is pure.
package compare

import (
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// Difference is one way in which two hosts differ that matters to VMs which would move from the first to the second.
type Difference struct {
	What     string // "processor", "QEMU"
	From, To string
	// Stops names the CPU modes of VMs that cannot move because of it: "host-passthrough", "host-model". Empty is a
	// remark.
	Stops []string
	Why   string
}

// Comparison is two hosts side by side.
type Comparison struct {
	Missing     []string // processor flags that the first has and the second has not
	Additional  []string // those that only the second has
	Differences []Difference
	VMs         []Move // the first host's VMs, each with what keeps it from moving
}

// Move is whether one VM could move.
type Move struct {
	VM       string
	CPUMode  string
	Obstacle []string // why it cannot; empty when nothing is known against it
}

// CPU modes that a difference of processors may stop. CERN's cloud uses the first for compute hosts and does without
// migration, the second for services ("CPU Model Selection for High Throughput Computing", August 2015).
const (
	passthrough = "host-passthrough"
	hostModel   = "host-model"
)

// Hosts returns what stands between the VMs of one host and another host. It judges what both hosts tell of
// themselves, never that a migration will work: networks, storage and firmware are not looked at.
func Hosts(from, to farm.HostFacts) Comparison {
	c := Comparison{
		Missing:    without(from.Topology.CPU.Flags, to.Topology.CPU.Flags),
		Additional: without(to.Topology.CPU.Flags, from.Topology.CPU.Flags),
	}
	c.processors(from.Topology.CPU, to.Topology.CPU)
	c.programs(from, to)
	for _, d := range from.Domains {
		c.VMs = append(c.VMs, c.move(d, to))
	}
	return c
}

// Stopped reports whether VMs of a CPU mode cannot move.
func (c Comparison) Stopped(mode string) bool {
	return slices.ContainsFunc(c.Differences, func(d Difference) bool { return slices.Contains(d.Stops, mode) })
}

func without(a, b []string) []string {
	var out []string
	for _, flag := range a {
		if !slices.Contains(b, flag) {
			out = append(out, flag)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (c *Comparison) add(d Difference) { c.Differences = append(c.Differences, d) }

func (c *Comparison) processors(a, b farm.CPUModel) {
	if a.Vendor != b.Vendor {
		c.add(Difference{"vendor", a.Vendor, b.Vendor, []string{passthrough, hostModel},
			"no VM moves between vendors while it runs"})
	}
	same := func(m farm.CPUModel) string {
		return fmt.Sprintf("%s, family %d model %d stepping %d", m.Name, m.Family, m.Model, m.Stepping)
	}
	if same(a) != same(b) {
		c.add(Difference{"processor", same(a), same(b), []string{passthrough},
			"a guest that saw the processor itself must find the same one"})
	}
	if len(c.Missing) > 0 {
		c.add(Difference{"processor flags", fmt.Sprintf("%d that the second lacks", len(c.Missing)), "without them",
			[]string{passthrough, hostModel},
			"a guest may use what it was shown; a custom CPU model that both hosts have would do"})
	}
}

func (c *Comparison) programs(from, to farm.HostFacts) {
	if a, b := from.Versions.QEMU, to.Versions.QEMU; a != b && a != "" && b != "" {
		d := Difference{What: "QEMU", From: a, To: b, Why: "VMs move to the same QEMU or a newer one"}
		if older(b, a) {
			d.Stops = []string{passthrough, hostModel}
			d.Why = "VMs move to the same QEMU or a newer one: an older one may not know their machine type"
		}
		c.add(d)
	}
	if a, b := from.Kernel.Release, to.Kernel.Release; a != b {
		c.add(Difference{What: "kernel", From: a, To: b, Why: "KVM of another kernel may show guests other features"})
	}
	pa, _ := from.KVM.Paging()
	pb, _ := to.KVM.Paging()
	if pa.On() && pb.Off() {
		c.add(Difference{What: "hardware page tables", From: "on", To: "off",
			Why: "some loads become several times slower there; see `grange tune explain ept-off`"})
	}
}

// move judges one VM of the first host.
func (c *Comparison) move(d farm.Domain, to farm.HostFacts) Move {
	m := Move{VM: d.Name, CPUMode: d.CPUMode}
	if c.Stopped(d.CPUMode) {
		m.Obstacle = append(m.Obstacle, "CPU mode "+d.CPUMode+" on another processor")
	}
	if d.Migratable == "off" {
		m.Obstacle = append(m.Obstacle, "its CPU is declared not migratable")
	}
	if d.VCPUs > to.Topology.Online.Len() {
		m.Obstacle = append(m.Obstacle,
			fmt.Sprintf("%d vCPUs, and %d threads there", d.VCPUs, to.Topology.Online.Len()))
	}
	for _, disk := range d.Disks {
		if !disk.ReadOnly && (disk.Cache == "writeback" || disk.Cache == "unsafe" || disk.Cache == "") &&
			disk.Path != "" {
			m.Obstacle = append(m.Obstacle,
				fmt.Sprintf("disk %s is cached by the host (%s)", disk.Target, orDefault(disk.Cache)))
		}
	}
	for _, p := range d.Pages {
		if p.Size != 0 && !hasPages(to, p.Size) {
			m.Obstacle = append(m.Obstacle, fmt.Sprintf("no huge pages of %v there", p.Size))
		}
	}
	return m
}

func orDefault(cache string) string {
	if cache == "" {
		return "the default"
	}
	return cache
}

func hasPages(h farm.HostFacts, size farm.Bytes) bool {
	return slices.ContainsFunc(h.Pages, func(p farm.PagePool) bool { return p.Size == size && p.Total > 0 })
}

// older reports whether version a is before b, number by number.
func older(a, b string) bool {
	return slices.Compare(numbers(a), numbers(b)) < 0
}

func numbers(version string) []int {
	out := []int{0}
	for _, r := range version {
		switch {
		case r >= '0' && r <= '9':
			out[len(out)-1] = min(out[len(out)-1]*10+int(r-'0'), 1<<30)
		case r == '.':
			out = append(out, 0)
		default:
			return out
		}
	}
	return out
}
