package placer

import (
	"cmp"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placement"
)

// line is the VMs that have no host yet: those that were not tried, a queue for each project, and those that no host
// took, a bench for each class. All of one class are taken or none is, so that one that is refused speaks for those
// behind it.
type line struct {
	projects map[string][]*candidate // oldest first
	turns    []string                // projects with a queue; the first one is next
	benches  map[placement.Class]*bench
	retry    []*bench // that may have better luck now, in this order
	at       map[string]*candidate
}

// candidate is a VM without a host.
type candidate struct {
	vm    *farm.VM
	bench *bench // nil: it is in its project's queue
	told  string // what its row says that it waits for
}

// bench is VMs of a class that waits.
type bench struct {
	class   placement.Class
	cells   []string
	waiting []*candidate // oldest first; never empty
	why     error        // that they were refused last
	again   bool         // it is in retry
}

func newLine() *line {
	return &line{projects: map[string][]*candidate{}, benches: map[placement.Class]*bench{},
		at: map[string]*candidate{}}
}

// add puts a VM at the end of its project's queue, instead of wherever it was.
func (l *line) add(vm *farm.VM) {
	l.remove(vm.ID)
	c := &candidate{vm: vm, told: vm.Waiting}
	l.at[vm.ID] = c
	if len(l.projects[vm.Project]) == 0 {
		l.turns = append(l.turns, vm.Project)
	}
	l.projects[vm.Project] = append(l.projects[vm.Project], c)
}

// remove forgets a VM.
func (l *line) remove(id string) {
	c := l.at[id]
	if c == nil {
		return
	}
	delete(l.at, id)
	is := func(o *candidate) bool { return o == c }
	if c.bench != nil {
		if c.bench.waiting = slices.DeleteFunc(c.bench.waiting, is); len(c.bench.waiting) == 0 {
			l.clear(c.bench)
		}
		return
	}
	if queue := slices.DeleteFunc(l.projects[c.vm.Project], is); len(queue) > 0 {
		l.projects[c.vm.Project] = queue
	} else {
		l.leave(c.vm.Project)
	}
}

// clear takes a bench away on which nobody is left.
func (l *line) clear(b *bench) {
	delete(l.benches, b.class)
	l.retry = slices.DeleteFunc(l.retry, func(o *bench) bool { return o == b })
}

// leave takes a project without a queue out of the turns.
func (l *line) leave(project string) {
	delete(l.projects, project)
	if i := slices.Index(l.turns, project); i >= 0 {
		l.turns = slices.Delete(l.turns, i, i+1)
	}
}

// next takes the oldest VM of the project whose turn it is.
func (l *line) next() *candidate {
	if len(l.turns) == 0 {
		return nil
	}
	project := l.turns[0]
	queue := l.projects[project]
	c := queue[0]
	l.turns = l.turns[1:]
	if queue[0] = nil; len(queue) > 1 {
		l.projects[project] = queue[1:]
		l.turns = append(l.turns, project)
	} else {
		delete(l.projects, project)
	}
	delete(l.at, c.vm.ID)
	return c
}

// sit has a VM wait with those of its class.
func (l *line) sit(c *candidate, r placement.Request) *bench {
	class := placement.ClassOf(r)
	b := l.benches[class]
	if b == nil {
		b = &bench{class: class, cells: r.Cells}
		l.benches[class] = b
	}
	c.bench = b
	i, _ := slices.BinarySearchFunc(b.waiting, c, older)
	b.waiting = slices.Insert(b.waiting, i, c)
	l.at[c.vm.ID] = c
	return b
}

func older(a, b *candidate) int {
	return cmp.Or(a.vm.Created.Compare(b.vm.Created), strings.Compare(a.vm.ID, b.vm.ID))
}

// roomier has benches tried again that look at one of these cells, those of the oldest VMs first.
func (l *line) roomier(cells map[string]bool) {
	added := false
	for _, b := range l.benches {
		if !b.again && slices.ContainsFunc(b.cells, func(c string) bool { return cells[c] }) {
			b.again, added = true, true
			l.retry = append(l.retry, b)
		}
	}
	if added {
		slices.SortStableFunc(l.retry, func(a, b *bench) int { return older(a.waiting[0], b.waiting[0]) })
	}
}

// again has all that wait tried as if they were new: what they may have is another thing by now.
func (l *line) again() {
	var all []*candidate
	for _, b := range l.benches {
		all = append(all, b.waiting...)
	}
	slices.SortFunc(all, older)
	for _, c := range all {
		l.add(c.vm)
	}
}

// first is the oldest VM of the bench that is to be tried next; nil when there is none.
func (l *line) first() *candidate {
	if len(l.retry) == 0 {
		return nil
	}
	return l.retry[0].waiting[0]
}

// refused is done with the first bench: those behind its first VM are not better off.
func (l *line) refused() {
	l.retry[0].again, l.retry = false, l.retry[1:]
}

// idle tells that nothing is left to try.
func (l *line) idle() bool { return len(l.turns) == 0 && len(l.retry) == 0 }
