package placer

import (
	"cmp"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placement"
)

// queue is the VMs that have no host yet: those that were not tried, a queue for each project, and those that no host
// took, a waitlist for each class. All of one class are taken or none is, so that one that is refused speaks for those
// behind it.
type queue struct {
	projects  map[string][]*candidate // oldest first
	turns     []string                // projects with a queue; the first one is next
	waitlists map[placement.Class]*waitlist
	retry     []*waitlist // that may have better luck now, in this order
	at        map[string]*candidate
}

// candidate is a VM without a host.
type candidate struct {
	vm       *farm.VM
	waitlist *waitlist // nil: it is in its project's queue
	reason   string    // what its row says that it waits for
}

// waitlist is VMs of a class that waits.
type waitlist struct {
	class   placement.Class
	cells   []string
	waiting []*candidate // oldest first; never empty
	why     error        // that they were refused last
	again   bool         // it is in retry
}

func newQueue() *queue {
	return &queue{projects: map[string][]*candidate{}, waitlists: map[placement.Class]*waitlist{},
		at: map[string]*candidate{}}
}

// add puts a VM at the end of its project's queue, instead of wherever it was.
func (q *queue) add(vm *farm.VM) {
	q.remove(vm.ID)
	c := &candidate{vm: vm, reason: vm.Waiting}
	q.at[vm.ID] = c
	if len(q.projects[vm.Project]) == 0 {
		q.turns = append(q.turns, vm.Project)
	}
	q.projects[vm.Project] = append(q.projects[vm.Project], c)
}

// remove forgets a VM.
func (q *queue) remove(id string) {
	c := q.at[id]
	if c == nil {
		return
	}
	delete(q.at, id)
	is := func(o *candidate) bool { return o == c }
	if c.waitlist != nil {
		if c.waitlist.waiting = slices.DeleteFunc(c.waitlist.waiting, is); len(c.waitlist.waiting) == 0 {
			q.clear(c.waitlist)
		}
		return
	}
	if vms := slices.DeleteFunc(q.projects[c.vm.Project], is); len(vms) > 0 {
		q.projects[c.vm.Project] = vms
	} else {
		q.leave(c.vm.Project)
	}
}

// clear takes a waitlist away on which nobody is left.
func (q *queue) clear(w *waitlist) {
	delete(q.waitlists, w.class)
	q.retry = slices.DeleteFunc(q.retry, func(o *waitlist) bool { return o == w })
}

// leave takes a project without a queue out of the turns.
func (q *queue) leave(project string) {
	delete(q.projects, project)
	if i := slices.Index(q.turns, project); i >= 0 {
		q.turns = slices.Delete(q.turns, i, i+1)
	}
}

// next takes the oldest VM of the project whose turn it is.
func (q *queue) next() *candidate {
	if len(q.turns) == 0 {
		return nil
	}
	project := q.turns[0]
	vms := q.projects[project]
	c := vms[0]
	q.turns = q.turns[1:]
	if vms[0] = nil; len(vms) > 1 {
		q.projects[project] = vms[1:]
		q.turns = append(q.turns, project)
	} else {
		delete(q.projects, project)
	}
	delete(q.at, c.vm.ID)
	return c
}

// park has a VM wait with those of its class.
func (q *queue) park(c *candidate, r placement.Request) *waitlist {
	class := placement.ClassOf(r)
	w := q.waitlists[class]
	if w == nil {
		w = &waitlist{class: class, cells: r.Cells}
		q.waitlists[class] = w
	}
	c.waitlist = w
	i, _ := slices.BinarySearchFunc(w.waiting, c, older)
	w.waiting = slices.Insert(w.waiting, i, c)
	q.at[c.vm.ID] = c
	return w
}

func older(a, b *candidate) int {
	return cmp.Or(a.vm.Created.Compare(b.vm.Created), strings.Compare(a.vm.ID, b.vm.ID))
}

// retryIn has waitlists tried again that look at one of these cells, those of the oldest VMs first.
func (q *queue) retryIn(cells map[string]bool) {
	added := false
	for _, w := range q.waitlists {
		if !w.again && slices.ContainsFunc(w.cells, func(c string) bool { return cells[c] }) {
			w.again, added = true, true
			q.retry = append(q.retry, w)
		}
	}
	if added {
		slices.SortStableFunc(q.retry, func(a, b *waitlist) int { return older(a.waiting[0], b.waiting[0]) })
	}
}

// retryAll has all that wait tried as if they were new: what they may have is another thing by now.
func (q *queue) retryAll() {
	var all []*candidate
	for _, w := range q.waitlists {
		all = append(all, w.waiting...)
	}
	slices.SortFunc(all, older)
	for _, c := range all {
		q.add(c.vm)
	}
}

// first is the oldest VM of the waitlist that is to be tried next; nil when there is none.
func (q *queue) first() *candidate {
	if len(q.retry) == 0 {
		return nil
	}
	return q.retry[0].waiting[0]
}

// refused is done with the first waitlist: those behind its first VM are not better off.
func (q *queue) refused() {
	q.retry[0].again, q.retry = false, q.retry[1:]
}

// idle reports that nothing is left to try.
func (q *queue) idle() bool { return len(q.turns) == 0 && len(q.retry) == 0 }
