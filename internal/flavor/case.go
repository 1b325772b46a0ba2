package flavor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// CodeBadCase is the code of errors about a recorded placement case that cannot be read; see docs/errors.md.
const CodeBadCase farm.Code = "bad-case"

// Bounds on what a case may say. They are far above any machine, and keep a hostile file from becoming memory.
const (
	maxFile      = 256 << 20 // bytes
	maxHostCells = 1024
	maxCPU       = 8191 // Linux's CONFIG_NR_CPUS is 8192
	maxPageKiB   = 1 << 30
	maxMemoryMiB = 1 << 32
	maxThreads   = 64      // of a core
	maxUsage     = 1 << 20 // vCPUs that float over one host cell
)

// Case is one recorded placement question: a host as it was, and what a VM wants of it.
type Case struct {
	ID       string
	Host     []HostCell
	Guest    []GuestCell
	Emulator string  // "", "share" or "isolate"
	Reserved int     // dedicated CPUs that the first guest cell takes beside its own
	Limits   *Limits // nil: overcommit is not limited, but no guest overcommits against itself
	Expect   *bool   // the recorded verdict; nil when there is none
	// Contested marks a case whose recorded verdict an independent matching contradicts.
	Contested bool
	Source    string
}

// HostCell is a NUMA node of the host.
type HostCell struct {
	ID          int     `json:"id"`
	CPUs        []int   `json:"cpus"`           // those that VMs share
	Dedicated   []int   `json:"dedicated_cpus"` // those that are given to one VM alone
	MemoryMiB   int64   `json:"memory_mb"`
	CPUUsage    int     `json:"cpu_usage"` // vCPUs that float over CPUs
	MemoryUsage int64   `json:"memory_usage_mb"`
	Pinned      []int   `json:"pinned_cpus"`
	Siblings    [][]int `json:"siblings"` // one set of threads a core
	Socket      *int    `json:"socket"`
	Pages       []Pages `json:"pages"`
}

// Pages is a node's pool of memory pages of one size. The smallest size is the host's ordinary memory.
type Pages struct {
	SizeKiB  int64 `json:"size_kb"`
	Total    int64 `json:"total"`
	Used     int64 `json:"used"`
	Reserved int64 `json:"reserved"`
}

// Free is how many pages are left.
func (p Pages) Free() int64 { return max(p.Total-p.Used-p.Reserved, 0) }

// GuestCell is a NUMA node of the guest.
type GuestCell struct {
	Shared    []int    `json:"vcpus_shared"`
	Dedicated []int    `json:"vcpus_dedicated"`
	MemoryMiB int64    `json:"memory_mb"`
	PageSize  PageSize `json:"pagesize_kb"`
	CPUPolicy string   `json:"cpu_policy"` // "" is shared
	Threads   string   `json:"thread_policy"`
}

// Limits are how far VMs that share CPUs may overcommit a node: positive infinity where a limit is not said.
type Limits struct{ CPU, Memory float64 }

// UnmarshalJSON reads the ratios that are there.
func (l *Limits) UnmarshalJSON(text []byte) error {
	var raw struct {
		CPU    *float64 `json:"cpu_allocation_ratio"`
		Memory *float64 `json:"ram_allocation_ratio"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	*l = Limits{CPU: math.Inf(1), Memory: math.Inf(1)}
	if raw.CPU != nil {
		l.CPU = *raw.CPU
	}
	if raw.Memory != nil {
		l.Memory = *raw.Memory
	}
	return nil
}

// PageSize is a wish for memory pages: none, a word, or one size.
type PageSize struct {
	Word string // "small", "large", "any", or empty
	KiB  int64  // 0 unless one size is wanted
}

// UnmarshalJSON reads null, a word or a number of KiB.
func (p *PageSize) UnmarshalJSON(text []byte) error {
	*p = PageSize{}
	if bytes.Equal(text, []byte("null")) {
		return nil
	}
	if err := json.Unmarshal(text, &p.KiB); err == nil {
		if p.KiB < 1 || p.KiB > maxPageKiB {
			return fmt.Errorf("%d KiB is not a page size", p.KiB)
		}
		return nil
	}
	if err := json.Unmarshal(text, &p.Word); err != nil || !slices.Contains([]string{"small", "large", "any"}, p.Word) {
		return fmt.Errorf("pagesize_kb %s is neither a number nor small, large or any", text)
	}
	return nil
}

// Read gives the cases of a file: the whole document with its "cases", a list of cases, or one case. Each is still to
// be parsed, so that one that is malformed does not hide the others.
func Read(r io.Reader) ([]json.RawMessage, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read placement cases: %w", err)
	}
	if len(text) > maxFile {
		return nil, badCases("the file is larger than %d MiB", maxFile>>20)
	}
	text = bytes.TrimSpace(text)
	if bytes.HasPrefix(text, []byte("[")) {
		return list(text)
	}
	var document struct {
		Cases json.RawMessage `json:"cases"`
		Host  json.RawMessage `json:"host"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, badCases("the file is not JSON: %v", err)
	}
	switch {
	case document.Cases != nil:
		return list(document.Cases)
	case document.Host != nil:
		return []json.RawMessage{text}, nil
	}
	return nil, badCases(`the document has no "cases"`)
}

func list(text []byte) ([]json.RawMessage, error) {
	var cases []json.RawMessage
	if err := json.Unmarshal(text, &cases); err != nil {
		return nil, badCases("the cases are not a list: %v", err)
	}
	return cases, nil
}

func badCases(format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: CodeBadCase, Message: fmt.Sprintf(format, args...),
		Hint: `give a document {"cases": [...]} or a list of cases, each with "id", "host" and "request"`}
}

// ID is the name of a case that may be malformed otherwise; empty where it has none.
func ID(text []byte) string {
	var named struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(text, &named) // a case without a name is answered without one
	return named.ID
}

// Parse reads one case. Keys that it does not know are let pass, for recorded cases carry notes; what it does know must
// make sense.
func Parse(text []byte) (Case, error) {
	var raw struct {
		ID      string `json:"id"`
		Source  string `json:"source"`
		Host    struct{ Cells []HostCell }
		Request struct {
			Cells    []GuestCell
			Emulator *string `json:"emulator_threads"`
		}
		Limits    *Limits `json:"limits"`
		Reserved  int     `json:"reserved_cpus"`
		Contested bool    `json:"contested"`
		Expect    *struct {
			Fits *bool `json:"fits"`
		} `json:"expect"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return Case{}, badCases("case %q: %v", ID(text), err)
	}
	c := Case{ID: raw.ID, Source: raw.Source, Host: raw.Host.Cells, Guest: raw.Request.Cells, Limits: raw.Limits,
		Reserved: raw.Reserved, Contested: raw.Contested}
	if raw.Request.Emulator != nil {
		c.Emulator = *raw.Request.Emulator
	}
	if raw.Expect != nil {
		c.Expect = raw.Expect.Fits
	}
	if err := c.check(); err != nil {
		return Case{}, badCases("case %q: %v", c.ID, err)
	}
	return c, nil
}

func (c Case) check() error {
	switch {
	case len(c.Host) == 0 || len(c.Host) > maxHostCells:
		return fmt.Errorf("a host of %d cells", len(c.Host))
	case len(c.Guest) == 0 || len(c.Guest) > maxHostCells:
		return fmt.Errorf("a guest of %d cells", len(c.Guest))
	case !slices.Contains([]string{"", "share", "isolate"}, c.Emulator):
		return fmt.Errorf("emulator_threads %q is neither share nor isolate", c.Emulator)
	case c.Reserved < 0 || c.Reserved > maxCPU:
		return fmt.Errorf("%d reserved CPUs", c.Reserved)
	case c.Limits != nil && !(c.Limits.CPU >= 0 && c.Limits.Memory >= 0):
		return fmt.Errorf("negative limits")
	}
	ids, holder := map[int]bool{}, map[int]int{}
	for _, h := range c.Host {
		if ids[h.ID] {
			return fmt.Errorf("two host cells have id %d", h.ID)
		}
		ids[h.ID] = true
		if err := h.check(); err != nil {
			return fmt.Errorf("host cell %d: %w", h.ID, err)
		}
		for _, cpu := range h.Dedicated {
			if other, ok := holder[cpu]; ok && other != h.ID {
				return fmt.Errorf("CPU %d is dedicated in host cells %d and %d", cpu, other, h.ID)
			}
			holder[cpu] = h.ID
		}
	}
	for i, g := range c.Guest {
		if err := g.check(); err != nil {
			return fmt.Errorf("guest cell %d: %w", i, err)
		}
	}
	return nil
}

func (h HostCell) check() error {
	if h.ID < 0 || h.ID > maxCPU {
		return fmt.Errorf("its id is not a node number")
	}
	for _, set := range append([][]int{h.CPUs, h.Dedicated, h.Pinned}, h.Siblings...) {
		if err := checkCPUs(set); err != nil {
			return err
		}
	}
	seen := map[int]bool{}
	for _, s := range h.Siblings {
		if len(s) > maxThreads {
			return fmt.Errorf("a core of %d threads", len(s))
		}
		for _, cpu := range s {
			if seen[cpu] {
				return fmt.Errorf("CPU %d is a sibling twice", cpu)
			}
			seen[cpu] = true
		}
	}
	if h.MemoryMiB < 0 || h.MemoryMiB > maxMemoryMiB || h.MemoryUsage < 0 || h.MemoryUsage > maxMemoryMiB {
		return fmt.Errorf("%d MiB of memory, %d used", h.MemoryMiB, h.MemoryUsage)
	}
	if h.CPUUsage < 0 || h.CPUUsage > maxUsage {
		return fmt.Errorf("a CPU usage of %d", h.CPUUsage)
	}
	sizes := map[int64]bool{}
	for _, p := range h.Pages {
		if p.SizeKiB < 1 || p.SizeKiB > maxPageKiB || p.Total < 0 || p.Used < 0 || p.Reserved < 0 ||
			p.Total > maxMemoryMiB<<10/p.SizeKiB || sizes[p.SizeKiB] {
			return fmt.Errorf("pages of %d KiB do not make sense", p.SizeKiB)
		}
		sizes[p.SizeKiB] = true
	}
	return nil
}

func checkCPUs(cpus []int) error {
	for _, cpu := range cpus {
		if cpu < 0 || cpu > maxCPU {
			return fmt.Errorf("%d is not a CPU number", cpu)
		}
	}
	return nil
}

func (g GuestCell) check() error {
	if err := checkCPUs(append(slices.Clone(g.Shared), g.Dedicated...)); err != nil {
		return err
	}
	for _, cpu := range g.Shared {
		if slices.Contains(g.Dedicated, cpu) {
			return fmt.Errorf("vCPU %d is shared and dedicated", cpu)
		}
	}
	switch {
	case len(g.Shared)+len(g.Dedicated) == 0:
		return fmt.Errorf("it has no vCPU")
	case g.MemoryMiB < 1 || g.MemoryMiB > maxMemoryMiB:
		return fmt.Errorf("%d MiB of memory", g.MemoryMiB)
	case !slices.Contains([]string{"", "shared", "dedicated", "mixed"}, g.CPUPolicy):
		return fmt.Errorf("cpu_policy %q is not known", g.CPUPolicy)
	case !slices.Contains([]string{"", "prefer", "isolate", "require"}, g.Threads):
		return fmt.Errorf("thread_policy %q is not known", g.Threads)
	}
	return nil
}
