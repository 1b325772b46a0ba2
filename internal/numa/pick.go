package numa

import (
	"cmp"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// picker chooses threads on one node. It is used again and again, so that choosing among nodes costs no memory.
type picker struct {
	view   *view
	node   *nodeIndex
	cores  []coreState  // by nodeIndex.cores
	groups []groupState // by nodeIndex.groups
	policy farm.ThreadPolicy
	pinned int // vCPUs to place
	need   int // of them, still
	depth  int // vCPUs to put on a core where siblings are required
	score  score
}

type coreState struct{ threads, usable, taken int }

type groupState struct {
	used bool
	left int // usable threads that are not taken
}

// use is what a pick takes of one core.
type use struct {
	core    int
	threads []int
}

// score says how much a pick disturbs; lower is better, the first field first.
type score struct {
	loose  int // vCPUs whose core is not theirs alone
	groups int // sockets and caches touched
	broken int // whole cores of which only a part is taken
}

// perfect is the score of whole cores beside one cache.
var perfect = score{groups: 1}

func (a score) compare(b score) int {
	return cmp.Or(cmp.Compare(a.loose, b.loose), cmp.Compare(a.groups, b.groups), cmp.Compare(a.broken, b.broken))
}

func newPicker(cores int) picker {
	return picker{cores: make([]coreState, cores), groups: make([]groupState, 0, 4)}
}

// pick chooses threads of the node for the cell's pinned vCPUs. They must fit.
func (p *picker) pick(v *view, node int, w *want) {
	if p.node == &v.nodes[node] && p.pinned == w.pinned && p.policy == w.threads {
		return // it is the one that was picked last
	}
	p.view, p.node, p.pinned, p.need, p.policy = v, &v.nodes[node], w.pinned, w.pinned, w.threads
	p.groups = p.groups[:0]
	for i := range p.node.cores {
		c := &p.node.cores[i]
		p.cores[i] = coreState{threads: len(c.threads), usable: v.usable.Common(c.cpus)}
	}
	for i := range p.node.groups {
		p.groups = append(p.groups, groupState{left: v.usable.Common(p.node.groups[i].cpus)})
	}
	if p.policy == farm.RequireSiblings {
		p.depth = p.deepest()
	}
	for p.need > 0 && p.takeGroup() {
	}
	for p.need > 0 && p.takeLoose() {
	}
	p.rate()
}

// gives is how many of need vCPUs an untouched core takes, by thread policy; 0 when it is not to be used.
func (p *picker) gives(core, need int) int {
	usable := p.cores[core].usable
	switch {
	case p.policy == farm.RequireSiblings && usable >= p.depth:
		return min(p.depth, need)
	case p.policy == farm.RequireSiblings || !p.whole(core):
		return 0
	case p.policy == farm.IsolateCores:
		return min(1, need)
	case usable <= need:
		return usable
	}
	return 0
}

// deepest is the largest number of vCPUs a core, at least two, with which all fit; one that leaves a vCPU alone on the
// last core only where no other does.
func (p *picker) deepest() int {
	alone := 2
	for t := p.node.smt; t >= 2; t-- {
		cores := 0
		for i := range p.node.cores {
			cores += number(p.cores[i].usable >= t)
		}
		switch {
		case t*cores < p.need:
		case p.need%t != 1:
			return t
		case alone == 2:
			alone = t
		}
	}
	return alone
}

// whole reports that all threads of the core could be had.
func (p *picker) whole(core int) bool { return p.cores[core].usable == p.cores[core].threads }

// takeGroup takes untouched cores from the group that can give most of what is needed; of several, the fullest.
func (p *picker) takeGroup() bool {
	type offer struct{ group, gives, short, far, left int }
	best := offer{}
	for i := range p.groups {
		o := offer{group: i, gives: p.offers(i), left: p.groups[i].left}
		o.short, o.far = number(o.left < p.need), number(p.otherSocket(i))
		if o.gives > 0 && (best.gives == 0 || cmp.Or(cmp.Compare(best.gives, o.gives), cmp.Compare(o.short, best.short),
			cmp.Compare(o.far, best.far), cmp.Compare(o.left, best.left)) < 0) {
			best = o
		}
	}
	if best.gives == 0 {
		return false
	}
	g := &p.node.groups[best.group]
	for i := g.first; i < g.end && p.need > 0; i++ {
		if p.cores[i].taken == 0 {
			p.take(best.group, i, p.gives(i, p.need))
		}
	}
	return true
}

// offers is how many of the needed vCPUs the group's untouched cores can take.
func (p *picker) offers(group int) int {
	g, sum := &p.node.groups[group], 0
	for i := g.first; i < g.end && sum < p.need; i++ {
		if p.cores[i].taken == 0 {
			sum += p.gives(i, p.need-sum)
		}
	}
	return sum
}

// otherSocket reports that the pick has begun, and not on this group's socket.
func (p *picker) otherSocket(group int) bool {
	began := false
	for i := range p.groups {
		if p.groups[i].used && p.socket(i) == p.socket(group) {
			return false
		}
		began = began || p.groups[i].used
	}
	return began
}

func (p *picker) socket(group int) int { return p.node.cores[p.node.groups[group].first].socket }

// takeLoose takes threads that do not make a whole core: from one core that can hold all that is still needed, in a
// group used already, and a core that is part taken before a whole one.
func (p *picker) takeLoose() bool {
	group, core := p.loose(func(int) bool { return true })
	if core < 0 {
		return false
	}
	p.take(group, core, min(p.cores[core].usable-p.cores[core].taken, p.need))
	return true
}

// loose finds the core whose threads are best taken in part, among those that may be used; core is -1 when there is
// none.
func (p *picker) loose(may func(core int) bool) (group, core int) {
	type offer struct{ gives, partial, elsewhere, far, breaks, left int }
	var best offer
	group, core = -1, -1
	for gi := range p.node.groups {
		g, state := &p.node.groups[gi], &p.groups[gi]
		elsewhere, far := number(!state.used), number(p.otherSocket(gi))
		for i := g.first; i < g.end; i++ {
			free := p.cores[i].usable - p.cores[i].taken
			if free == 0 || !may(i) {
				continue
			}
			o := offer{gives: min(free, p.need), partial: number(free < p.need), elsewhere: elsewhere, far: far,
				breaks: number(p.whole(i) && p.cores[i].taken == 0), left: state.left}
			if core < 0 || cmp.Or(cmp.Compare(o.partial, best.partial), cmp.Compare(o.elsewhere, best.elsewhere),
				cmp.Compare(o.far, best.far), cmp.Compare(o.breaks, best.breaks), cmp.Compare(best.gives, o.gives),
				cmp.Compare(o.left, best.left)) < 0 {
				best, group, core = o, gi, i
			}
		}
	}
	return group, core
}

func (p *picker) take(group, core, threads int) {
	if threads == 0 {
		return
	}
	p.cores[core].taken += threads
	p.need -= threads
	p.groups[group].used = true
	p.groups[group].left -= threads
}

func (p *picker) rate() {
	p.score = score{}
	for i := range p.node.cores {
		taken := p.cores[i].taken
		if taken > 0 && taken < p.cores[i].threads {
			p.score.loose += taken
			p.score.broken += number(p.whole(i))
		}
	}
	for _, g := range p.groups {
		p.score.groups += number(g.used)
	}
}

// cpus lists what was taken in order of socket and first thread: the order of the guest's vCPUs.
func (p *picker) cpus() []int {
	uses := make([]use, 0, min(p.pinned, len(p.node.cores)))
	for i := range p.node.cores {
		if taken := p.cores[i].taken; taken > 0 {
			uses = append(uses, use{i, p.usableThreads(i)[:taken]})
		}
	}
	slices.SortFunc(uses, func(a, b use) int {
		return cmp.Or(cmp.Compare(p.node.cores[a.core].socket, p.node.cores[b.core].socket),
			cmp.Compare(a.threads[0], b.threads[0]))
	})
	out := make([]int, 0, p.pinned)
	for _, u := range uses {
		out = append(out, u.threads...)
	}
	return out
}

func (p *picker) usableThreads(core int) []int {
	threads := p.node.cores[core].threads
	if p.whole(core) {
		return threads
	}
	out := make([]int, 0, len(threads))
	for _, cpu := range threads {
		if p.view.usable.Has(cpu) {
			out = append(out, cpu)
		}
	}
	return out
}

// idle is the threads that nobody may have beside isolated vCPUs: the siblings on their cores.
func (p *picker) idle() farm.CPUSet {
	var ids []int
	for i := range p.node.cores {
		if taken := p.cores[i].taken; taken > 0 {
			ids = append(ids, p.usableThreads(i)[taken:]...)
		}
	}
	return farm.NewCPUSet(ids...)
}

// emulator takes one more thread for QEMU itself, after pick: a sibling that the VM's own vCPUs leave idle if there is
// one. Beside isolated vCPUs it takes a core they are not on, whole if there is one; all threads of it that are free
// are held.
func (p *picker) emulator(policy farm.ThreadPolicy) (cpu int, held farm.CPUSet) {
	p.need = 1
	if policy != farm.IsolateCores {
		_, core := p.loose(func(int) bool { return true })
		cpu = p.usableThreads(core)[p.cores[core].taken]
		return cpu, farm.NewCPUSet(cpu)
	}
	_, core := p.loose(func(i int) bool { return p.cores[i].taken == 0 && p.whole(i) })
	if core < 0 {
		_, core = p.loose(func(i int) bool { return p.cores[i].taken == 0 })
	}
	threads := p.usableThreads(core)
	return threads[0], farm.NewCPUSet(threads...)
}
