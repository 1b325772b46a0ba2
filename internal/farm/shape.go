package farm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Limits of what a VM may ask for; far beyond any host, so that absurd requests fail early and clearly.
const (
	MaxCPUs    = 4096
	MaxVMs     = 100_000 // of a project without a quota of VMs
	MaxMemory  = 64 * TiB
	MaxScratch = 1024 * TiB
	MinMemory  = 64 * MiB // below this no Debian kernel unpacks its initramfs
)

// Shape is the size and tuning of a VM.
type Shape struct {
	Name     string
	CPUs     int
	Memory   Bytes
	Scratch  Bytes   // disk at /tmp; 0: /tmp is in memory
	Pages    []Bytes // page sizes that will do, best first; 0 stands for ordinary pages; empty: ordinary pages
	Network  Network
	Guest    GuestTopology // zero: follow the pins
	MaxGuest GuestTopology // most of each that people may ask for where the shape is a fleet's; 0 bounds nothing
	Purpose  Purpose
	CPUModel string // "host-passthrough", "host-model", "maximum" or the name of a model; "": as the purpose says
	Threads  ThreadPolicy
	Emulator EmulatorPolicy
	Cells    int    // guest NUMA: 0 lets the planner decide, 1 is none, n is n equal cells on n nodes
	Cache    string // of disks, in libvirt's words: "writeback", "none"; "": as the purpose says
	Disks    Disks  // beside Scratch
	Display  bool   // it has a screen, keyboard and mouse, which people reach from afar
	// What it may receive and send, of VMs whose network is Limited
	Bandwidth Bandwidth
}

// Purpose is what a VM is tuned for.
type Purpose string

// Purposes.
const (
	PurposeCompute Purpose = ""        // throw-away: as fast as the host, and never moved
	PurposeService Purpose = "service" // long-lived, and fit to be migrated
)

func (p Purpose) String() string {
	if p == PurposeCompute {
		return "compute"
	}
	return string(p)
}

// Validate refuses shapes that no host could hold.
func (s Shape) Validate() error {
	switch {
	case s.CPUs < 1 || s.CPUs > MaxCPUs:
		return badShape("%d CPUs", s.CPUs)
	case s.Memory < MinMemory || s.Memory > MaxMemory:
		return badShape("%v of memory; the least is %v", s.Memory, MinMemory)
	case s.Memory%MiB != 0:
		return badShape("%v of memory is not a multiple of 1M", s.Memory)
	case s.Scratch > MaxScratch:
		return badShape("%v of scratch", s.Scratch)
	case s.Scratch != 0 && s.Scratch < 4*MiB:
		return badShape("%v of scratch; the least is 4M", s.Scratch)
	case !s.Network.valid():
		return badShape("network %q; there are %s", s.Network, networkForms())
	}
	if err := s.Bandwidth.validate(); err != nil {
		return err
	}
	if err := s.validateDisks(); err != nil {
		return err
	}
	return s.validateTuning()
}

// Quota is what one VM of the shape takes of a quota.
func (s Shape) Quota() Quota {
	return Quota{VMs: 1, CPUs: s.CPUs, Memory: s.Memory, Scratch: s.DiskSpace()}
}

// WithGuest is the shape with a guest topology that somebody chose, within what the shape allows. The error is a *Error
// of kind Invalid or Denied.
func (s Shape) WithGuest(g GuestTopology) (Shape, error) {
	if g == (GuestTopology{}) {
		return s, nil
	}
	g = GuestTopology{max(g.Sockets, 1), max(g.Cores, 1), max(g.Threads, 1)}
	if g.Sockets*g.Cores*g.Threads != s.CPUs {
		return s, badShape("%d sockets × %d cores × %d threads: that is not %s", g.Sockets, g.Cores, g.Threads,
			Count(s.CPUs, "CPU"))
	}
	over := func(n, most int) bool { return most > 0 && n > most }
	if m := s.MaxGuest; over(g.Sockets, m.Sockets) || over(g.Cores, m.Cores) || over(g.Threads, m.Threads) {
		return s, &Error{Kind: Denied, Code: CodePolicy, Hint: "take less of it, or another shape",
			Message: fmt.Sprintf("shape %s does not allow %d sockets × %d cores × %d threads: its maxima are %s, %s "+
				"and %s", s.Name, g.Sockets, g.Cores, g.Threads, most(m.Sockets), most(m.Cores), most(m.Threads))}
	}
	s.Guest = g
	return s, nil
}

func most(n int) string {
	if n == 0 {
		return "any"
	}
	return strconv.Itoa(n)
}

func badShape(format string, args ...any) error {
	return &Error{Kind: Invalid, Code: CodeBadShape, Message: "no VM can have " + fmt.Sprintf(format, args...),
		Hint: "see `grange exec --help` for sizes, `grange host show` for what this host has"}
}

// Tuning is the tuning of a shape as people write it. An empty word leaves what the shape has.
type Tuning struct {
	Purpose      string // "compute" or "service"
	CPUModel     string // as Shape.CPUModel; "default": as the purpose says
	ThreadPolicy string // "prefer", "require" or "isolate"
	Emulator     string // "beside" or "isolate"
	NUMA         string // "auto", "none" or a number of cells
	Pages        string // "0", "2M", "1G", several as "1G,2M,0", or "any" for all three
	Cache        string // as Shape.Cache; "default": as the purpose says
}

// With is the shape with the words of t in place of its own. The error is a *Error of kind Invalid; Validate checks the
// rest.
func (s Shape) With(t Tuning) (Shape, error) {
	if t.Purpose != "" {
		s.Purpose = Purpose(unless(t.Purpose, "compute"))
	}
	if t.CPUModel != "" {
		s.CPUModel = unless(t.CPUModel, "default")
	}
	if t.ThreadPolicy != "" {
		s.Threads = ThreadPolicy(unless(t.ThreadPolicy, "prefer"))
	}
	if t.Emulator != "" {
		s.Emulator = EmulatorPolicy(unless(t.Emulator, "beside"))
	}
	if t.Cache != "" {
		s.Cache = unless(t.Cache, "default")
	}
	var err error
	if t.NUMA != "" {
		if s.Cells, err = parseNUMA(t.NUMA); err != nil {
			return s, err
		}
	}
	if t.Pages != "" {
		s.Pages, err = parsePages(t.Pages)
	}
	return s, err
}

// unless is the word, or "" for the one that names the default.
func unless(word, usual string) string {
	if word == usual {
		return ""
	}
	return word
}

// maxCells is the most guest NUMA cells; no host has more nodes of its own.
const maxCells = 64

func parseNUMA(text string) (int, error) {
	switch text {
	case "auto":
		return 0, nil
	case "none":
		return 1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxCells {
		return 0, badShape("NUMA %q; write auto, none, or a number of cells up to %d", text, maxCells)
	}
	return n, nil
}

// parsePages reads page sizes, best first. Ordinary pages alone are the empty list.
func parsePages(text string) ([]Bytes, error) {
	if text == "any" {
		text = "1G,2M,0"
	}
	var sizes []Bytes
	for word := range strings.SplitSeq(text, ",") {
		size, err := ParseBytes(strings.TrimSpace(word))
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, size)
	}
	if slices.Equal(sizes, []Bytes{0}) {
		return nil, nil
	}
	return sizes, nil
}

// caches are libvirt's words for how a disk uses the host's page cache.
var caches = []string{"", "writeback", "none", "writethrough", "directsync", "unsafe"}

func (s Shape) validateTuning() error {
	for i, size := range s.Pages {
		switch {
		case size != 0 && size != 2*MiB && size != GiB:
			return badShape("pages of %v; there are 2M and 1G, and 0 for ordinary ones", size)
		case slices.Contains(s.Pages[:i], size):
			return badShape("pages of %v twice", size)
		}
	}
	switch {
	case s.Purpose != PurposeCompute && s.Purpose != PurposeService:
		return badShape("purpose %q; there are compute and service", s.Purpose)
	case len(s.CPUModel) > 64 || strings.ContainsFunc(s.CPUModel, notInModel):
		return badShape("CPU model %q", s.CPUModel)
	case s.Threads != PreferSiblings && s.Threads != RequireSiblings && s.Threads != IsolateCores:
		return badShape("thread policy %q; there are prefer, require and isolate", s.Threads)
	case s.Emulator != EmulatorBeside && s.Emulator != EmulatorIsolate:
		return badShape("emulator policy %q; there are beside and isolate", s.Emulator)
	case s.Cells < 0 || s.Cells > maxCells:
		return badShape("%d NUMA cells", s.Cells)
	case s.Cells > s.CPUs:
		return badShape("%d NUMA cells for %d CPUs", s.Cells, s.CPUs)
	case !slices.Contains(caches, s.Cache):
		return badShape("cache mode %q; there are %s", s.Cache, strings.Join(caches[1:], ", "))
	}
	return nil
}

// notInModel reports whether no name of a CPU model has the character: "Haswell-noTSX-IBRS", "EPYC-Rome-v2".
func notInModel(c rune) bool {
	return c != '-' && c != '_' && c != '.' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
}
