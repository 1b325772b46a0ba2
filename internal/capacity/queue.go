package capacity

import (
	"cmp"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// queue is jobs that wait, by what they ask for: of equal ones all have a place, or none.
type queue struct {
	byKind map[demandKey][]int // jobs in the order of their numbers, which is that of submission
	order  []demandKey         // the one whose first job is the oldest comes first
}

type demandKey struct {
	cpus   int
	memory farm.Bytes
}

func newQueue() *queue { return &queue{byKind: map[demandKey][]int{}} }

func keyOf(j Job) demandKey { return demandKey{j.CPUs, j.Memory} }

// has reports whether a job such as this one waits already.
func (q *queue) has(j Job) bool { return len(q.byKind[keyOf(j)]) > 0 }

func (q *queue) empty() bool { return len(q.byKind) == 0 }

func (q *queue) size() (n int) {
	for _, jobs := range q.byKind {
		n += len(jobs)
	}
	return n
}

func (q *queue) add(job int, j Job) {
	key := keyOf(j)
	jobs := q.byKind[key]
	if len(jobs) == 0 {
		q.order = append(q.order, key)
	}
	i, _ := slices.BinarySearch(jobs, job)
	q.byKind[key] = slices.Insert(jobs, i, job)
	q.sort()
}

func (q *queue) sort() {
	slices.SortFunc(q.order, func(a, b demandKey) int { return cmp.Compare(q.byKind[a][0], q.byKind[b][0]) })
}

// each starts jobs of each kind, the oldest first, until one of that kind has no place.
func (q *queue) each(start func(job int) bool) {
	moved := false
	for _, key := range q.order {
		for len(q.byKind[key]) > 0 && start(q.byKind[key][0]) {
			q.byKind[key], moved = q.byKind[key][1:], true
		}
		if len(q.byKind[key]) == 0 {
			delete(q.byKind, key)
		}
	}
	if moved {
		q.order = slices.DeleteFunc(q.order, func(k demandKey) bool { return len(q.byKind[k]) == 0 })
		q.sort()
	}
}
