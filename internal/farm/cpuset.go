package farm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxCPU bounds CPU numbers in parsed lists, so that "0-4294967295" is an error and not an allocation.
// Linux's own limit (CONFIG_NR_CPUS) is 8192.
const maxCPU = 8191

// CPUSet is a set of CPU numbers, kept sorted and without doubles. The zero value is the empty set. Never changed in place.
type CPUSet struct{ ids []int }

// NewCPUSet makes a set of the given CPUs.
func NewCPUSet(ids ...int) CPUSet {
	s := slices.Clone(ids)
	slices.Sort(s)
	return CPUSet{slices.Compact(s)}
}

// ParseCPUSet reads the kernel's list format: "0-3,8,10-11". The empty string is the empty set.
func ParseCPUSet(s string) (CPUSet, error) {
	var ids []int
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
			return CPUSet{}, &Error{Kind: Invalid, Code: CodeBadCPUList, Message: fmt.Sprintf("%q is not a CPU list", s), Hint: "write for example 0-3,8"}
		}
		for id := first; id <= last; id++ {
			ids = append(ids, id)
		}
	}
	return NewCPUSet(ids...), nil
}

// String gives the kernel's list format.
func (s CPUSet) String() string {
	var b strings.Builder
	for i := 0; i < len(s.ids); {
		j := i
		for j+1 < len(s.ids) && s.ids[j+1] == s.ids[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(s.ids[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(s.ids[j]))
		}
		i = j + 1
	}
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

// List returns the CPUs in rising order. The caller must not change it.
func (s CPUSet) List() []int { return s.ids }

// Len is the number of CPUs.
func (s CPUSet) Len() int { return len(s.ids) }

// Empty tells whether there are none.
func (s CPUSet) Empty() bool { return len(s.ids) == 0 }

// Has tells whether cpu is in s.
func (s CPUSet) Has(cpu int) bool { _, ok := slices.BinarySearch(s.ids, cpu); return ok }

// Equal tells whether both hold the same CPUs.
func (s CPUSet) Equal(o CPUSet) bool { return slices.Equal(s.ids, o.ids) }

// Or is the union.
func (s CPUSet) Or(o CPUSet) CPUSet { return NewCPUSet(append(slices.Clone(s.ids), o.ids...)...) }

// And is what both hold.
func (s CPUSet) And(o CPUSet) CPUSet { return s.filter(o.Has) }

// Minus is what s holds and o does not.
func (s CPUSet) Minus(o CPUSet) CPUSet { return s.filter(func(c int) bool { return !o.Has(c) }) }

func (s CPUSet) filter(keep func(int) bool) CPUSet {
	var ids []int
	for _, id := range s.ids {
		if keep(id) {
			ids = append(ids, id)
		}
	}
	return CPUSet{ids}
}
