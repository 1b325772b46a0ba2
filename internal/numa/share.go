package numa

import (
	"cmp"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// shareSteps is share by equal weights, in steps of so many vCPUs.
func shareSteps(total, step int, caps []int) []int {
	if total%step != 0 {
		return nil
	}
	steps := slices.Clone(caps)
	for i := range steps {
		steps[i] /= step
	}
	parts := share(total/step, slices.Repeat([]int{1}, len(caps)), steps)
	for i := range parts {
		parts[i] *= step
	}
	return parts
}

// share cuts total into parts of at least one and at most caps, in proportion to weights as far as caps allow. It gives
// nil where that cannot be.
func share(total int, weights, caps []int) []int {
	parts := make([]int, len(caps))
	rest := total
	for i, c := range caps {
		if c < 1 {
			return nil
		}
		parts[i] = 1
		rest--
	}
	for rest > 0 {
		weight, before := 0, rest
		for i := range parts {
			if parts[i] < caps[i] {
				weight += weights[i]
			}
		}
		if weight == 0 {
			return nil
		}
		for i := range parts {
			if parts[i] < caps[i] {
				add := min(before/weight*weights[i]+before%weight*weights[i]/weight, caps[i]-parts[i])
				parts[i], rest = parts[i]+add, rest-add
			}
		}
		if rest == before { // all parts were rounded to nothing
			i := 0
			for parts[i] >= caps[i] {
				i++
			}
			parts[i], rest = parts[i]+1, rest-1
		}
	}
	if rest < 0 {
		return nil
	}
	return parts
}

// shareMemory cuts total into a part for each source, in proportion to vcpus as far as the sources allow, or gives nil
// where that cannot be. Sources may be of one account, and then have its memory together.
func shareMemory(total farm.Bytes, vcpus []int, from []source) []farm.Bytes {
	order := make([]int, len(from)) // those of one unit together, the largest unit first
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(from[b].unit, from[a].unit),
			cmp.Compare(number(from[a].shared), number(from[b].shared)), cmp.Compare(from[a].size, from[b].size),
			cmp.Compare(from[a].node, from[b].node))
	})
	parts := make([]farm.Bytes, len(from))
	rest := total
	for _, f := range from { // a unit for each
		if f.unit > rest {
			return nil
		}
		rest -= f.unit
	}
	// Units are powers of two: what larger ones can make of the rest, smaller ones need not. So each unit in turn takes
	// all it can.
	for first := 0; first < len(order); {
		end := first
		for end < len(order) && from[order[end]].unit == from[order[first]].unit {
			end++
		}
		took, ok := shareUnits(rest, vcpus, from, order[first:end], parts)
		if !ok {
			return nil
		}
		rest -= took
		first = end
	}
	if rest > 0 {
		return nil
	}
	return parts
}

// shareUnits gives the sources in group, all of one unit, one unit each and then as much of rest as they have. It tells
// how much of rest that was.
func shareUnits(rest farm.Bytes, vcpus []int, from []source, group []int, parts []farm.Bytes) (farm.Bytes, bool) {
	unit := from[group[0]].unit
	var accounts [][]int // members of group with one account
	for _, i := range group {
		if n := len(accounts); n > 0 && from[accounts[n-1][0]].account() == from[i].account() {
			accounts[n-1] = append(accounts[n-1], i)
		} else {
			accounts = append(accounts, []int{i})
		}
	}
	weights, caps, room := make([]int, len(accounts)), make([]int, len(accounts)), 0
	for a, members := range accounts {
		for _, i := range members {
			weights[a] += vcpus[i]
		}
		caps[a] = from[members[0]].free - len(members) + 1
		if caps[a] < 1 {
			return 0, false
		}
		room += min(caps[a]-1, units(rest, unit))
	}
	take := min(room, units(rest, unit))
	for a, units := range share(take+len(accounts), weights, caps) { // never nil: there is room for take
		members := accounts[a]
		ones, each := make([]int, len(members)), make([]int, len(members))
		for j, i := range members {
			ones[j], each[j] = vcpus[i], units+len(members)-1
		}
		for j, n := range share(units+len(members)-1, ones, each) {
			parts[members[j]] = farm.Bytes(n) * unit
		}
	}
	return farm.Bytes(take) * unit, true
}

// combinations is n over k, or more than maxSets.
func combinations(n, k int) int {
	c := 1
	for i := range min(k, n-k) {
		if c = c * (n - i) / (i + 1); c > maxSets {
			return c
		}
	}
	return c
}

func eachCombination(n, k int, try func(set []int)) {
	set := make([]int, k)
	for i := range set {
		set[i] = i
	}
	for {
		try(set)
		i := k - 1
		for i >= 0 && set[i] == n-k+i {
			i--
		}
		if i < 0 {
			return
		}
		set[i]++
		for j := i + 1; j < k; j++ {
			set[j] = set[j-1] + 1
		}
	}
}

// power is n to the k, or more than maxSets.
func power(n, k int) int {
	p := 1
	for range k {
		if p *= n; p > maxSets {
			break
		}
	}
	return p
}

// eachMix tries the ways to give each node of set one of its options, the first ones first, up to a bound. What try
// gets is changed for the next.
func eachMix(set []int, options [][]source, bound int, try func(from []source)) {
	at, from := make([]int, len(set)), make([]source, len(set))
	for range bound {
		for i, n := range set {
			if len(options[n]) == 0 {
				return
			}
			from[i] = options[n][at[i]]
		}
		try(from)
		i := 0
		for i < len(set) && at[i] == len(options[set[i]])-1 {
			at[i], i = 0, i+1
		}
		if i == len(set) {
			return
		}
		at[i]++
	}
}
