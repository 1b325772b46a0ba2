// Package judge judges answers to placement cases by the rules that the cases come with. It knows nothing of the
// planner: it reads cases and answers as they are written down, and finds what is feasible by trying every assignment
// of guest cells to host cells.
package judge

import (
	"fmt"
	"math"
	"slices"

	"github.com/grange-project/grange/internal/flavor"
)

// Valid finds the first rule that an answer breaks; nil when it breaks none.
func Valid(c flavor.Case, a flavor.Answer) error {
	if !a.Fits {
		if a.Reason == "" {
			return fmt.Errorf("a refusal without a reason")
		}
		return nil
	}
	if len(a.Cells) != len(c.Guest) {
		return fmt.Errorf("%d cells for a guest of %d", len(a.Cells), len(c.Guest))
	}
	used := map[int]bool{}
	taken := map[int]bool{}
	for i, g := range c.Guest {
		got := a.Cells[i]
		h := hostCell(c, got.HostCell)
		if h == nil || used[h.ID] {
			return fmt.Errorf("cell %d: host cell %d does not exist, or is taken by another cell", i, got.HostCell)
		}
		used[h.ID] = true
		reserved := 0
		if i == 0 {
			reserved = reservedOf(c)
		}
		if len(got.Reserved) != reserved {
			return fmt.Errorf("cell %d: reserved CPUs %v, want %d", i, got.Reserved, reserved)
		}
		if err := validPins(*h, g, got, taken); err != nil {
			return fmt.Errorf("cell %d: %w", i, err)
		}
		if err := validMemory(c, *h, g, got); err != nil {
			return fmt.Errorf("cell %d: %w", i, err)
		}
		if !sharedFits(c, *h, g) {
			return fmt.Errorf("cell %d: host cell %d is overcommitted", i, h.ID)
		}
	}
	return nil
}

func hostCell(c flavor.Case, id int) *flavor.HostCell {
	if i := slices.IndexFunc(c.Host, func(h flavor.HostCell) bool { return h.ID == id }); i >= 0 {
		return &c.Host[i]
	}
	return nil
}

// reservedOf is how many CPUs are held beside the first guest cell.
func reservedOf(c flavor.Case) int {
	if !owns(c.Guest[0]) {
		return 0
	}
	if c.Emulator == "isolate" {
		return max(c.Reserved, 1)
	}
	return c.Reserved
}

func owns(g flavor.GuestCell) bool {
	return g.CPUPolicy == "dedicated" || g.CPUPolicy == "mixed" || len(g.Dedicated) > 0
}

func validPins(h flavor.HostCell, g flavor.GuestCell, got flavor.AnswerCell, taken map[int]bool) error {
	if len(got.Pin) != len(g.Dedicated) {
		return fmt.Errorf("pins %v for vCPUs %v", got.Pin, g.Dedicated)
	}
	var pins []int
	for _, v := range g.Dedicated {
		cpu, ok := got.Pin[v]
		if !ok {
			return fmt.Errorf("vCPU %d is not pinned", v)
		}
		pins = append(pins, cpu)
	}
	for _, cpu := range append(slices.Clone(pins), got.Reserved...) {
		if !slices.Contains(h.Dedicated, cpu) || slices.Contains(h.Pinned, cpu) || taken[cpu] {
			return fmt.Errorf("CPU %d of host cell %d is not free", cpu, h.ID)
		}
		taken[cpu] = true
	}
	return validThreads(h, g, pins, got.Reserved)
}

// validThreads judges the thread policy, core by core.
func validThreads(h flavor.HostCell, g flavor.GuestCell, pins, reserved []int) error {
	widest := widestCore(h)
	partial, lone := 0, 0
	for _, s := range h.Siblings {
		mine, free := common(s, pins), len(freeOf(h, s))
		if mine == 0 {
			continue
		}
		lone += number(mine == 1)
		partial += number(mine+common(s, reserved) < free)
		if g.Threads == "isolate" && (mine > 1 || free != len(s) || len(s) != widest || common(s, reserved) > 0) {
			return fmt.Errorf("isolate: core %v, of which %d are free, has %d vCPUs and %d reserved CPUs", s, free,
				mine, common(s, reserved))
		}
	}
	switch {
	case g.Threads == "require" && lone > len(pins)%2:
		return fmt.Errorf("require: %d vCPUs are alone on their core", lone)
	case g.Threads != "require" && g.Threads != "isolate" && partial > 1:
		return fmt.Errorf("prefer: %d cores are used in part, which could be filled instead: %v", partial, pins)
	}
	return nil
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func widestCore(h flavor.HostCell) int {
	widest := 0
	for _, s := range h.Siblings {
		widest = max(widest, len(s))
	}
	return widest
}

func common(a, b []int) int {
	n := 0
	for _, x := range a {
		n += number(slices.Contains(b, x))
	}
	return n
}

func freeOf(h flavor.HostCell, cpus []int) []int {
	var free []int
	for _, cpu := range cpus {
		if slices.Contains(h.Dedicated, cpu) && !slices.Contains(h.Pinned, cpu) {
			free = append(free, cpu)
		}
	}
	return free
}

func validMemory(c flavor.Case, h flavor.HostCell, g flavor.GuestCell, got flavor.AnswerCell) error {
	if len(h.Pages) == 0 {
		if got.PageKiB != nil || !memoryFits(c, h, g, 0) {
			return fmt.Errorf("%d MiB on host cell %d, which reports no pages", g.MemoryMiB, h.ID)
		}
		return nil
	}
	if got.PageKiB == nil || !slices.Contains(sizes(h, g), *got.PageKiB) || !memoryFits(c, h, g, *got.PageKiB) {
		return fmt.Errorf("%d MiB in pages of %v KiB on host cell %d", g.MemoryMiB, got.PageKiB, h.ID)
	}
	return nil
}

// sizes are the page sizes of the host cell that the guest cell takes.
func sizes(h flavor.HostCell, g flavor.GuestCell) []int64 {
	var all []int64
	for _, p := range h.Pages {
		all = append(all, p.SizeKiB)
	}
	slices.Sort(all)
	switch {
	case len(all) == 0:
		return nil
	case g.PageSize.KiB > 0 && slices.Contains(all, g.PageSize.KiB):
		return []int64{g.PageSize.KiB}
	case g.PageSize.KiB > 0:
		return nil
	case g.PageSize.Word == "any":
		return all
	case g.PageSize.Word == "large":
		return all[1:]
	}
	return all[:1]
}

// memoryFits judges one page size; 0 is plain memory.
func memoryFits(c flavor.Case, h flavor.HostCell, g flavor.GuestCell, size int64) bool {
	if owns(g) && g.MemoryMiB > h.MemoryMiB-h.MemoryUsage {
		return false
	}
	if !owns(g) && c.Limits != nil && float64(h.MemoryUsage+g.MemoryMiB) > float64(h.MemoryMiB)*c.Limits.Memory+1e-9 {
		return false
	}
	if size == 0 {
		return g.MemoryMiB <= h.MemoryMiB
	}
	for _, p := range h.Pages {
		if p.SizeKiB == size {
			have := p.Total - p.Used - p.Reserved
			if !owns(g) && g.PageSize == (flavor.PageSize{}) {
				have = p.Total
			}
			return g.MemoryMiB*1024%size == 0 && g.MemoryMiB*1024 <= have*size
		}
	}
	return false
}

func sharedFits(c flavor.Case, h flavor.HostCell, g flavor.GuestCell) bool {
	pool := len(h.CPUs)
	if owns(g) {
		pool -= common(h.CPUs, h.Dedicated)
	}
	if len(g.Shared) > pool {
		return false
	}
	return c.Limits == nil || len(g.Shared) == 0 ||
		float64(h.CPUUsage+len(g.Shared)) <= math.Floor(float64(len(h.CPUs))*c.Limits.CPU+1e-9)
}

// cellFits reports whether a guest cell, with reserved CPUs beside it, fits an empty-handed host cell.
func cellFits(c flavor.Case, h flavor.HostCell, g flavor.GuestCell, reserved int) bool {
	fits := len(h.Pages) == 0 && g.PageSize == (flavor.PageSize{}) && memoryFits(c, h, g, 0)
	for _, size := range sizes(h, g) {
		fits = fits || memoryFits(c, h, g, size)
	}
	if !fits || !sharedFits(c, h, g) {
		return false
	}
	if len(g.Dedicated) == 0 && reserved == 0 {
		return g.CPUPolicy != "dedicated"
	}
	return threadsFit(h, g, reserved)
}

func threadsFit(h flavor.HostCell, g flavor.GuestCell, reserved int) bool {
	cores := h.Siblings
	if len(cores) == 0 {
		for _, cpu := range h.Dedicated {
			cores = append(cores, []int{cpu})
		}
	}
	widest, need, all := max(widestCore(h), 1), len(g.Dedicated), 0
	atLeast := make([]int, widest+1) // cores with as many free threads
	var free []int
	for _, s := range cores {
		n := len(freeOf(h, s))
		free = append(free, n)
		all += n
		for t := 1; t <= n; t++ {
			atLeast[t]++
		}
	}
	if need == 0 || all < need+reserved {
		return all >= need+reserved
	}
	switch g.Threads {
	case "isolate":
		slices.Sort(h.CPUs)
		slices.Sort(h.Dedicated)
		if widest > 1 && !slices.Equal(h.CPUs, h.Dedicated) {
			return false
		}
		// The reserved CPUs take the cores that isolate cannot use, and then whole ones.
		beside, whole := 0, atLeast[widest]
		for _, n := range free {
			if n < widest {
				beside += n
			}
		}
		return whole >= need && beside+(whole-need)*widest >= reserved
	case "require":
		for t := 2; t <= widest; t++ {
			if t*atLeast[t] >= need {
				return true
			}
		}
		return false
	}
	return true
}

// Feasible reports whether some assignment of guest cells to host cells fits.
func Feasible(c flavor.Case) bool {
	reach := map[uint64]bool{0: true} // sets of host cells that the guest cells so far can hold
	for i, g := range c.Guest {
		reserved := 0
		if i == 0 {
			reserved = reservedOf(c)
		}
		next := map[uint64]bool{}
		for j, h := range c.Host {
			if !cellFits(c, h, g, reserved) {
				continue
			}
			for set := range reach {
				if set&(1<<j) == 0 {
					next[set|1<<j] = true
				}
			}
		}
		reach = next
	}
	return len(reach) > 0
}
