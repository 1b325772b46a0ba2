package report

import (
	"fmt"
	"io"

	"github.com/grange-project/grange/internal/tuning"
)

// Profile is the JSON form of a profile. Sizes are in bytes; an empty word, 0, and -1 for swappiness mean that the
// profile does not care.
type Profile struct {
	Name           string     `json:"name"`
	Title          string     `json:"title"`
	Role           string     `json:"role"`
	PageSizes      []uint64   `json:"page_sizes"`
	PageShare      float64    `json:"page_share"`
	Reserved       uint64     `json:"reserved"`
	THP            string     `json:"thp"`
	KSM            string     `json:"ksm"`
	NUMABalancing  string     `json:"numa_balancing"`
	Governor       string     `json:"governor"`
	MaxIdleLatency int        `json:"max_idle_latency"`
	SMT            string     `json:"smt"`
	Swappiness     int        `json:"swappiness"`
	Overcommit     float64    `json:"overcommit"`
	Nested         string     `json:"nested"`
	CPUMode        string     `json:"cpu_mode"`
	DiskCache      string     `json:"disk_cache"`
	Pinned         bool       `json:"pinned"`
	CoreFiles      string     `json:"core_files"`
	SwapPerCPU     uint64     `json:"swap_per_cpu"`
	ScratchPerCPU  uint64     `json:"scratch_per_cpu"`
	Sources        []Basis    `json:"sources"`
	Overheads      []Overhead `json:"overheads"`
}

// Basis is the evidence for some of a profile's values.
type Basis struct {
	Keys []string `json:"keys"`
	Source
}

// Overhead is one measurement of VMs against bare metal.
type Overhead struct {
	VMs     int     `json:"vms"`
	VCPUs   int     `json:"vcpus"`
	Percent float64 `json:"percent"`
	Tuned   bool    `json:"tuned"`
	Source  string  `json:"source"`
}

// ProfileOf is the JSON form of a profile.
func ProfileOf(p tuning.Profile) Profile {
	out := Profile{
		Name: p.Name, Title: p.Title, Role: string(p.Role), PageSizes: []uint64{}, PageShare: p.PageShare,
		Reserved: uint64(p.Reserved),
		THP:      p.THP, KSM: p.KSM, NUMABalancing: p.NUMABalancing, Governor: p.Governor,
		MaxIdleLatency: p.MaxIdleLatency, SMT: p.SMT,
		Swappiness: p.Swappiness, Overcommit: p.Overcommit, Nested: p.Nested, CPUMode: p.CPUMode,
		DiskCache: p.DiskCache, Pinned: p.Pinned,
		CoreFiles: p.CoreFiles, SwapPerCPU: uint64(p.SwapPerCPU), ScratchPerCPU: uint64(p.ScratchPerCPU),
		Sources: []Basis{}, Overheads: []Overhead{},
	}
	for _, size := range p.PageSizes {
		out.PageSizes = append(out.PageSizes, uint64(size))
	}
	for _, s := range p.Sources {
		out.Sources = append(out.Sources, Basis{s.Keys, Source(s.Source)})
	}
	for _, o := range p.Overheads {
		out.Overheads = append(out.Overheads, Overhead(o))
	}
	return out
}

// Profiles writes the list of profiles for people.
func Profiles(w io.Writer, profiles []tuning.Profile) error {
	p := &printer{w: w}
	name := len("NAME")
	for _, v := range profiles {
		name = max(name, len(v.Name))
	}
	p.line(fmt.Sprintf("%-*s  %-7s  %s", name, "NAME", "ROLE", "FOR"))
	for _, v := range profiles {
		p.line(fmt.Sprintf("%-*s  %-7s  %s", name, v.Name, v.Role, v.Title))
	}
	return p.err
}
