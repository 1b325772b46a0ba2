package capacity

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placement"
)

// Replay runs all jobs through all hosts, until the books are closed. Jobs start in the order in which they were
// submitted, but none waits for one that does not fit anywhere now: what fits goes first.
func Replay(ctx context.Context, o Options) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	s, err := o.site()
	if err != nil {
		return Report{}, err
	}
	r := &replay{o: o, site: s, until: seconds(o.Until), books: newBooks(o, s), waiting: newQueue(), ran: map[int]int{},
		possible: map[demandKey]bool{}}
	if r.empty, err = o.empty(); err != nil {
		return Report{}, err
	}
	if err := r.run(ctx); err != nil {
		return Report{}, err
	}
	return r.report()
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }

// replay is one under way.
type replay struct {
	o       Options
	site    site
	until   int64
	now     int64
	books   *books
	waiting *queue
	ends    ends
	ran     map[int]int // how often each job was started, of those whose host broke

	empty    site // one host of each kind
	possible map[demandKey]bool

	waits                        []int64
	ended, impossible, restarted int
	vms, mostVMs                 int
	memory, mostMemory           farm.Bytes
}

// end is when a job ends. It counts if the job was started as often as then: one whose host broke is started again.
type end struct {
	at    int64
	job   int
	place int
	start int // which of the job's
}

// ends is a heap, the earliest first.
type ends []end

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].at < e[j].at }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(end)) }
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// turn is the beginning or the end of an outage.
type turn struct {
	at    int64
	out   *Outage
	begin bool
}

func (o Options) turns() []turn {
	var all []turn
	for i := range o.Outages {
		out := &o.Outages[i]
		all = append(all, turn{seconds(out.From), out, true}, turn{seconds(out.To), out, false})
	}
	slices.SortStableFunc(all, func(a, b turn) int { return cmp.Compare(a.at, b.at) })
	return all
}

// look is how often it is looked what free CPUs are free for.
const look = 3600

func (r *replay) run(ctx context.Context) error {
	turns, job, looked := r.o.turns(), 0, min(look, r.until)
	for {
		// Of what happens at one time the look comes first, for it is about the time before, and the end last.
		at, next := r.until, (func() error)(nil)
		earlier := func(t int64, do func() error) {
			if t < at || t == at && next == nil {
				at, next = t, do
			}
		}
		earlier(looked, func() error {
			if r.o.Tell != nil {
				r.o.Tell(float64(r.now) / float64(r.until))
			}
			if looked += look; r.now < r.until {
				looked = min(looked, r.until)
			}
			r.books.look(r.site.places, r.waiting)
			return cmp.Or(ctx.Err(), r.books.check(r.site))
		})
		if len(r.ends) > 0 {
			earlier(r.ends[0].at, func() error { r.end(heap.Pop(&r.ends).(end)); return nil })
		}
		if len(turns) > 0 {
			earlier(turns[0].at, func() error { r.turn(turns[0]); turns = turns[1:]; return nil })
		}
		if job < len(r.o.Jobs) {
			earlier(seconds(r.o.Jobs[job].Submit), func() error { r.submit(job); job++; return nil })
		}
		r.books.pass(at - r.now)
		if r.now = at; next == nil {
			return nil
		}
		if err := next(); err != nil {
			return err
		}
	}
}

func (r *replay) submit(job int) {
	j := r.o.Jobs[job]
	switch {
	case !r.fitsEver(j):
		r.impossible++
	case r.waiting.has(j), !r.start(job):
		r.waiting.add(job, j)
	}
}

// fitsEver reports whether some host would take a job if it were empty.
func (r *replay) fitsEver(j Job) bool {
	key := keyOf(j)
	fits, known := r.possible[key]
	if !known {
		_, err := r.empty.fleet.Claim(r.request("x", j))
		r.empty.fleet.Release("x")
		fits = err == nil
		r.possible[key] = fits
	}
	return fits
}

// request is what a job asks for: a VM of its own, or a part of one that is there.
func (r *replay) request(vm string, j Job) placement.Request {
	s := r.o.Shape
	if r.o.VMCPUs > 0 {
		s = farm.Shape{}
	}
	s.CPUs, s.Memory = j.CPUs, j.Memory
	if len(s.Pages) > 0 && s.Pages[0] > 0 { // its memory is whole pages
		s.Memory = (s.Memory + s.Pages[0] - 1) / s.Pages[0] * s.Pages[0]
	}
	return placement.Request{VM: vm, Shape: s, Cells: []string{cell}}
}

// start gives a job its VM; false: it has no place now.
func (r *replay) start(job int) bool {
	j := r.o.Jobs[job]
	p, err := r.site.fleet.Claim(r.request(strconv.Itoa(job), j))
	if err != nil {
		return false
	}
	n, err := strconv.Atoi(p.Host)
	if err != nil {
		return false
	}
	at := r.site.places[n]
	held := p.Plan.Held().Len()
	at.held, at.taken = at.held+held, at.taken+j.Memory
	at.jobs[job] = r.now
	r.books.started(at.kind, j.CPUs, held, at.down)
	r.vms, r.memory = r.vms+1, r.memory+j.Memory
	r.mostVMs, r.mostMemory = max(r.mostVMs, r.vms), max(r.mostMemory, r.memory)
	r.waits = append(r.waits, r.now-seconds(j.Submit))
	heap.Push(&r.ends, end{r.now + seconds(j.Wall), job, n, r.ran[job]})
	return true
}

// leave takes a job from its place.
func (r *replay) leave(job int, at *place) (since int64) {
	j := r.o.Jobs[job]
	p, _ := r.site.fleet.Release(strconv.Itoa(job))
	held := p.Plan.Held().Len()
	at.held, at.taken = at.held-held, at.taken-j.Memory
	since = at.jobs[job]
	delete(at.jobs, job)
	r.books.stopped(at.kind, j.CPUs, held, at.down)
	r.vms, r.memory = r.vms-1, r.memory-j.Memory
	return since
}

// end ends a job, unless it was started anew meanwhile.
func (r *replay) end(e end) {
	if e.start != r.ran[e.job] {
		return
	}
	at := r.site.places[e.place]
	r.worked(e.job, at, r.leave(e.job, at))
	r.ended++
	r.next()
}

// worked enters what a job had of its place.
func (r *replay) worked(job int, at *place, since int64) {
	cpus := r.o.Jobs[job].CPUs
	size := cpus
	if r.o.VMCPUs > 0 {
		size = r.o.VMCPUs
	}
	r.books.worked(at.kind, float64(cpus)*float64(r.now-since), r.o.Loss.Of(size))
}

// next starts jobs that wait, until none fits.
func (r *replay) next() {
	r.waiting.each(func(job int) bool { return r.start(job) })
}

// turn begins or ends an outage.
func (r *replay) turn(t turn) {
	for n := r.site.first[t.out.Host]; n < r.site.first[t.out.Host+1]; n++ {
		at := r.site.places[n]
		switch {
		case !t.begin && at.down != t.out, t.begin && at.down != nil && (at.down.Broken || !t.out.Broken):
			continue // another outage counts
		case t.begin && t.out.Broken:
			r.crash(at)
		}
		r.books.turned(at, -1)
		if at.down = nil; t.begin {
			at.down = t.out
		}
		r.books.turned(at, 1)
		why := ""
		if at.down != nil {
			why = "out"
		}
		r.site.fleet.Refuse(at.id, why, false)
	}
	r.next()
}

// crash ends the jobs of a place; they wait again, as those that were submitted first.
func (r *replay) crash(at *place) {
	jobs := make([]int, 0, len(at.jobs))
	for job := range at.jobs {
		jobs = append(jobs, job)
	}
	slices.Sort(jobs)
	for _, job := range jobs {
		since := r.leave(job, at)
		r.books.repeated(at.kind, float64(r.o.Jobs[job].CPUs)*float64(r.now-since))
		r.ran[job]++
		r.restarted++
		r.waiting.add(job, r.o.Jobs[job])
	}
}

// report closes the books. Jobs that run have worked until now.
func (r *replay) report() (Report, error) {
	out := Report{Kinds: map[string]Books{}, Ended: r.ended, Restarted: r.restarted, MostVMs: r.mostVMs,
		MostMemory: r.mostMemory, Nodes: len(r.site.places)}
	for _, at := range r.site.places {
		for job, since := range at.jobs {
			out.Running++
			r.worked(job, at, since)
		}
		out.AllMemory += at.memory
	}
	for kind, b := range r.books.hours() {
		name := r.o.Hosts[kind].Kind
		all := out.Kinds[name]
		all.add(b)
		out.Kinds[name] = all
		out.Books.add(b)
	}
	out.Waiting, out.Impossible = r.waiting.size(), r.impossible
	slices.Sort(r.waits)
	if n := len(r.waits); n > 0 {
		out.WaitMedian, out.Wait95 = float64(r.waits[n/2]), float64(r.waits[n*95/100])
	}
	if d := out.Installed - out.Delivered - out.Lost(); d > out.Installed*1e-6 || d < -out.Installed*1e-6 {
		return out, fmt.Errorf("the books do not add up: %g of %g CPU hours are nowhere", d, out.Installed)
	}
	return out, nil
}
