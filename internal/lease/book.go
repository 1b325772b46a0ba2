package lease

import (
	"slices"
	"strings"
)

// Book remembers which lease was given when, and to which node of a batch system. A lease that has just come back is
// the last to be given again: others go on sending to the addresses of a VM that has ended. What an agent forgets at
// its end is no more than that.
type Book struct {
	last []given // the latest at the end
}

type given struct {
	node string // "": none
	mac  string
}

// Choose finds a lease that is not taken; false: all are. A node gets the one of its name, or the one that it had last.
func (b *Book) Choose(all []Lease, node string, taken *Taken) (Lease, bool) {
	best, rank := -1, 0
	for i, l := range all {
		if taken.Has(l) {
			continue
		}
		if r := b.rank(l, node); best < 0 || r < rank {
			best, rank = i, r
		}
	}
	if best < 0 {
		return Lease{}, false
	}
	l := all[best]
	b.last = slices.DeleteFunc(b.last, func(g given) bool { return g.mac == l.MAC || node != "" && g.node == node })
	b.last = append(b.last, given{node, l.MAC})
	return l, true
}

// rank orders leases: lower ones go first.
func (b *Book) rank(l Lease, node string) int {
	place := slices.IndexFunc(b.last, func(g given) bool { return g.mac == l.MAC })
	label, _, _ := strings.Cut(l.Name, ".")
	switch {
	case node != "" && (l.Name == node || label == node):
		return -2
	case node != "" && place >= 0 && b.last[place].node == node:
		return -1
	}
	return place + 1 // 0: it was never given
}
