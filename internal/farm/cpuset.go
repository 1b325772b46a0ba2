package farm

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// maxCPU bounds CPU numbers in parsed lists, so that "0-4294967295" is an error and not an allocation.
// Linux's own limit (CONFIG_NR_CPUS) is 8192.
const maxCPU = 8191

// CPUSet is a set of CPU numbers that Linux can have, 0 to 8191. The zero value is the empty set. Never changed in
// place.
type CPUSet struct {
	words []uint64 // bit i of word w is CPU 64*w+i; the last word is never 0, so that equal sets have equal words
}

// NewCPUSet makes a set of the given CPUs. It leaves out numbers that no CPU of Linux can have.
func NewCPUSet(ids ...int) CPUSet {
	top := -1
	for _, id := range ids {
		if isCPU(id) {
			top = max(top, id)
		}
	}
	if top < 0 {
		return CPUSet{}
	}
	words := make([]uint64, top/64+1)
	for _, id := range ids {
		if isCPU(id) {
			words[id/64] |= 1 << (id % 64)
		}
	}
	return CPUSet{words}
}

func isCPU(id int) bool { return id >= 0 && id <= maxCPU }

// CPURange makes the set of first to end-1.
func CPURange(first, end int) CPUSet {
	first, end = max(first, 0), min(end, maxCPU+1)
	if first >= end {
		return CPUSet{}
	}
	words := make([]uint64, (end-1)/64+1)
	for id := first; id < end; id++ {
		words[id/64] |= 1 << (id % 64)
	}
	return CPUSet{words}
}

// EachCPU makes a set of each CPU alone, in the given order, as the pins of many vCPUs are; the empty set for what is
// no CPU.
func EachCPU(cpus []int) []CPUSet {
	sets, size := make([]CPUSet, len(cpus)), 0
	for _, cpu := range cpus {
		if isCPU(cpu) {
			size += cpu/64 + 1
		}
	}
	words := make([]uint64, size)
	for i, cpu := range cpus {
		if isCPU(cpu) {
			n := cpu/64 + 1
			words[n-1] = 1 << (cpu % 64)
			sets[i], words = CPUSet{words[:n:n]}, words[n:]
		}
	}
	return sets
}

// Union is what any of sets holds.
func Union(sets ...CPUSet) CPUSet {
	size := 0
	for _, s := range sets {
		size = max(size, len(s.words))
	}
	words := make([]uint64, size)
	for _, s := range sets {
		for i, w := range s.words {
			words[i] |= w
		}
	}
	return trimmed(words)
}

// mostListed bounds the text of a list. One of 8192 CPUs has 40 KB at most.
const mostListed = 1 << 16

// ParseCPUSet reads the kernel's list format: "0-3,8,10-11". The empty string is the empty set. What it takes does not
// grow with ranges that overlap.
func ParseCPUSet(s string) (CPUSet, error) {
	bad := func() error {
		return &Error{Kind: Invalid, Code: CodeBadCPUList,
			Message: fmt.Sprintf("%q is not a CPU list", Clean(s, 100)), Hint: "write for example 0-3,8"}
	}
	if len(s) > mostListed {
		return CPUSet{}, bad()
	}
	var words [(maxCPU + 1) / 64]uint64
	top := -1
	for part := range strings.SplitSeq(strings.TrimSpace(s), ",") {
		if part == "" {
			continue
		}
		lo, hi, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(strings.TrimSpace(lo))
		last := first
		if err == nil && isRange {
			last, err = strconv.Atoi(strings.TrimSpace(hi))
		}
		if err != nil || first < 0 || last < first || last > maxCPU {
			return CPUSet{}, bad()
		}
		for w := first / 64; w <= last/64; w++ {
			from, to := max(first-64*w, 0), min(last-64*w, 63)
			words[w] |= ^uint64(0) << from & (^uint64(0) >> (63 - to))
		}
		top = max(top, last)
	}
	if top < 0 {
		return CPUSet{}, nil
	}
	own := make([]uint64, top/64+1)
	copy(own, words[:])
	return CPUSet{own}, nil
}

// String gives the kernel's list format.
func (s CPUSet) String() string {
	var b strings.Builder
	first, last := -1, -2 // the run being read
	flush := func() {
		if first < 0 {
			return
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(first))
		if last > first {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(last))
		}
	}
	for id := range s.All() {
		if id != last+1 {
			flush()
			first = id
		}
		last = id
	}
	flush()
	return b.String()
}

// MarshalText and UnmarshalText carry the list format through JSON and TOML.
func (s CPUSet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the list format.
func (s *CPUSet) UnmarshalText(text []byte) error {
	v, err := ParseCPUSet(string(text))
	if err == nil {
		*s = v
	}
	return err
}

// All goes through the CPUs in rising order.
func (s CPUSet) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, w := range s.words {
			for ; w != 0; w &= w - 1 {
				if !yield(64*i + bits.TrailingZeros64(w)) {
					return
				}
			}
		}
	}
}

// List returns the CPUs in rising order, in a slice of the caller's own; nil when there are none.
func (s CPUSet) List() []int {
	if s.Empty() {
		return nil
	}
	ids := make([]int, 0, s.Len())
	for id := range s.All() {
		ids = append(ids, id)
	}
	return ids
}

// Len is the number of CPUs.
func (s CPUSet) Len() int {
	n := 0
	for _, w := range s.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// Empty reports whether there are none.
func (s CPUSet) Empty() bool { return len(s.words) == 0 }

// Has reports whether cpu is in s.
func (s CPUSet) Has(cpu int) bool {
	return cpu >= 0 && cpu/64 < len(s.words) && s.words[cpu/64]>>(cpu%64)&1 != 0
}

// Equal reports whether both hold the same CPUs.
func (s CPUSet) Equal(o CPUSet) bool { return slices.Equal(s.words, o.words) }

// Common is how many CPUs both hold: the length of And, without making the set.
func (s CPUSet) Common(o CPUSet) int {
	n := 0
	for i := range min(len(s.words), len(o.words)) {
		n += bits.OnesCount64(s.words[i] & o.words[i])
	}
	return n
}

// Or is the union.
func (s CPUSet) Or(o CPUSet) CPUSet { return Union(s, o) }

// And is what both hold.
func (s CPUSet) And(o CPUSet) CPUSet {
	words := slices.Clone(s.words[:min(len(s.words), len(o.words))])
	for i := range words {
		words[i] &= o.words[i]
	}
	return trimmed(words)
}

// Minus is what s holds and o does not.
func (s CPUSet) Minus(o CPUSet) CPUSet {
	words := slices.Clone(s.words)
	for i := range min(len(words), len(o.words)) {
		words[i] &^= o.words[i]
	}
	return trimmed(words)
}

func trimmed(words []uint64) CPUSet {
	n := len(words)
	for n > 0 && words[n-1] == 0 {
		n--
	}
	if n == 0 {
		return CPUSet{}
	}
	return CPUSet{words[:n]}
}
