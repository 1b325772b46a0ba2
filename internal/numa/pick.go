package numa

import (
	"cmp"
	"slices"
)

// pick is a choice of threads on one node.
type pick struct {
	cores  []use
	loose  int // vCPUs whose core is not theirs alone
	broken int // whole cores of which only a part is taken
	groups int // sockets and caches touched
}

// use is one core of a pick.
type use struct {
	threads []int
	socket  int
	whole   bool // all threads of a free core
}

// pick chooses need threads of the node, which must have as many.
func (n *nodeView) pick(need int) pick {
	p := picker{node: n, need: need, taken: make([]int, len(n.cores)), groups: make([]groupState, len(n.groups))}
	for i, g := range n.groups {
		p.groups[i].left = g.threads
	}
	for p.need > 0 && p.takeWhole() {
	}
	for p.need > 0 && p.takeLoose() {
	}
	return p.result()
}

type picker struct {
	node   *nodeView
	need   int
	taken  []int // threads taken, by core
	groups []groupState
}

type groupState struct {
	used bool
	left int // threads not taken
}

// takeWhole takes whole cores from the group that can give most of what is needed; of several, the fullest.
func (p *picker) takeWhole() bool {
	type offer struct{ group, gives, short, far, left int }
	best := offer{}
	for i, g := range p.groups {
		o := offer{group: i, gives: p.wholeThreads(i), left: g.left}
		if g.left < p.need {
			o.short = 1
		}
		if p.otherSocket(i) {
			o.far = 1
		}
		if o.gives > 0 && (best.gives == 0 || cmp.Or(cmp.Compare(best.gives, o.gives), cmp.Compare(o.short, best.short),
			cmp.Compare(o.far, best.far), cmp.Compare(o.left, best.left)) < 0) {
			best = o
		}
	}
	if best.gives == 0 {
		return false
	}
	g := p.node.groups[best.group]
	for i := g.first; i < g.end; i++ {
		if c := p.node.cores[i]; c.whole && p.taken[i] == 0 && len(c.threads) <= p.need {
			p.take(best.group, i, len(c.threads))
		}
	}
	return true
}

// wholeThreads is how many of the needed vCPUs the group's untouched whole cores can hold without breaking one.
func (p *picker) wholeThreads(group int) int {
	g, sum := p.node.groups[group], 0
	for i := g.first; i < g.end && sum < p.need; i++ {
		if c := p.node.cores[i]; c.whole && p.taken[i] == 0 && len(c.threads) <= p.need-sum {
			sum += len(c.threads)
		}
	}
	return sum
}

// otherSocket tells that the pick has begun, and not on this group's socket.
func (p *picker) otherSocket(group int) bool {
	began := false
	for i, g := range p.groups {
		if g.used && p.socket(i) == p.socket(group) {
			return false
		}
		began = began || g.used
	}
	return began
}

func (p *picker) socket(group int) int { return p.node.cores[p.node.groups[group].first].socket }

// takeLoose takes threads that do not make a whole core: from one core that can hold all that is still needed, in a group used
// already, and a core that is part taken before a whole one.
func (p *picker) takeLoose() bool {
	type offer struct{ group, core, gives, partial, elsewhere, far, breaks, left int }
	var best *offer
	for gi, g := range p.node.groups {
		for i := g.first; i < g.end; i++ {
			c := p.node.cores[i]
			free := len(c.threads) - p.taken[i]
			if free == 0 {
				continue
			}
			o := offer{group: gi, core: i, gives: min(free, p.need), left: p.groups[gi].left}
			o.elsewhere, o.far, o.breaks = number(!p.groups[gi].used), number(p.otherSocket(gi)), number(c.whole)
			o.partial = number(free < p.need)
			if best == nil || cmp.Or(cmp.Compare(o.partial, best.partial), cmp.Compare(o.elsewhere, best.elsewhere),
				cmp.Compare(o.far, best.far), cmp.Compare(o.breaks, best.breaks), cmp.Compare(best.gives, o.gives),
				cmp.Compare(o.left, best.left)) < 0 {
				best = &o
			}
		}
	}
	if best == nil {
		return false
	}
	p.take(best.group, best.core, best.gives)
	return true
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (p *picker) take(group, core, threads int) {
	p.taken[core] += threads
	p.need -= threads
	p.groups[group].used = true
	p.groups[group].left -= threads
}

// result lists the cores in order of socket and first thread: the order of the guest's vCPUs.
func (p *picker) result() pick {
	var out pick
	for i, c := range p.node.cores {
		if p.taken[i] == 0 {
			continue
		}
		whole := c.whole && p.taken[i] == len(c.threads)
		out.cores = append(out.cores, use{threads: c.threads[:p.taken[i]], socket: c.socket, whole: whole})
		if !whole {
			out.loose += p.taken[i]
			out.broken += number(c.whole)
		}
	}
	for _, g := range p.groups {
		out.groups += number(g.used)
	}
	slices.SortFunc(out.cores, func(a, b use) int {
		return cmp.Or(cmp.Compare(a.socket, b.socket), cmp.Compare(a.threads[0], b.threads[0]))
	})
	return out
}
