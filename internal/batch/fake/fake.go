// Package fake is a batch system in memory: hosts with CPUs, a queue, accounting. It keeps the contract of
// batch.System, and is driven by tests; it starts no process.
package fake

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
)

// System is a batch system in memory; the zero value is none, see New.
type System struct {
	kind  farm.BatchSystem
	mu    sync.Mutex
	hosts map[string]*host
	jobs  map[string]*Job
	ended []batch.Ended
	next  int
	away  error
}

type host struct {
	cpus   int
	memory farm.Bytes
	closed bool
	down   bool
	reason string
}

// Job is a job of the system.
type Job struct {
	ID, Name, User, Account, Queue string
	Image, Shape, Host             string // Host "": any
	CPUs                           int
	Memory                         farm.Bytes
	Limit                          time.Duration
	Held                           bool
	Submitted, Started             time.Time
	where                          string
}

var (
	_ batch.System  = (*System)(nil)
	_ batch.Witness = (*System)(nil)
)

// New makes a system with these hosts, of so many CPUs and GiB each. It has one queue, "main".
func New(kind farm.BatchSystem, cpus, gigabytes int, hosts ...string) *System {
	s := &System{kind: kind, hosts: map[string]*host{}, jobs: map[string]*Job{}, next: 1}
	for _, h := range hosts {
		s.hosts[h] = &host{cpus: cpus, memory: farm.Bytes(gigabytes) << 30}
	}
	return s
}

// Name returns which system it plays.
func (s *System) Name() farm.BatchSystem { return s.kind }

// Fail makes every call fail with err until it is called with nil.
func (s *System) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = err
}

// lock begins a call.
func (s *System) lock() (unlock func(), err error) {
	s.mu.Lock()
	if s.away != nil {
		err = batch.Away(s.kind, s.away)
	}
	return s.mu.Unlock, err
}

// Submit queues a job, and starts it if there is room.
func (s *System) Submit(j Job) (id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.submit(j)
}

func (s *System) submit(j Job) string {
	j.ID = strconv.Itoa(s.next)
	s.next++
	j.Submitted, j.CPUs = time.Now(), max(j.CPUs, 1)
	j.Queue = cmp.Or(j.Queue, "main")
	s.jobs[j.ID] = &j
	s.schedule()
	return j.ID
}

// schedule starts what fits, in order.
func (s *System) schedule() {
	for _, j := range s.order() {
		if j.where != "" || j.Held {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(s.hosts)) {
			h := s.hosts[name]
			if (j.Host == "" || j.Host == name) && !h.closed && !h.down && s.free(name) >= j.CPUs {
				j.where, j.Started = name, time.Now()
				break
			}
		}
	}
}

func (s *System) order() []*Job {
	return slices.SortedFunc(maps.Values(s.jobs), func(a, b *Job) int {
		return cmp.Or(a.Submitted.Compare(b.Submitted), cmp.Compare(len(a.ID), len(b.ID)), cmp.Compare(a.ID, b.ID))
	})
}

func (s *System) free(name string) int {
	n := s.hosts[name].cpus
	for _, j := range s.jobs {
		if j.where == name {
			n -= j.CPUs
		}
	}
	return n
}

// Runs returns where a job runs; "" where it does not.
func (s *System) Runs(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[id]; j != nil {
		return j.where
	}
	return ""
}

// End ends a job. One that never ran is left out of the accounting.
func (s *System) End(id string, o batch.Outcome, code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(id, o, code)
}

func (s *System) end(id string, o batch.Outcome, code int) {
	j := s.jobs[id]
	if j == nil {
		return
	}
	delete(s.jobs, id)
	if j.where != "" {
		s.ended = append(s.ended, batch.Ended{Job: id, Name: j.Name, User: j.User, Account: j.Account, Queue: j.Queue,
			Hosts: []string{j.where}, CPUs: j.CPUs, Submitted: j.Submitted, Started: j.Started, Finished: time.Now(),
			Outcome: o, Code: code, Reservation: batch.ReservationOf(j.Name)})
	}
	s.schedule()
}

// AdminClose closes a host as an administrator does; AdminOpen opens it, whoever closed it.
func (s *System) AdminClose(name, reason string) { s.set(name, true, reason) }

// AdminOpen opens a host, whoever closed it.
func (s *System) AdminOpen(name string) { s.set(name, false, "") }

func (s *System) set(name string, closed bool, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.hosts[name]
	h.closed, h.reason = closed, reason
	s.schedule()
}

// Demand is what waits.
func (s *System) Demand(context.Context) ([]batch.Demand, error) {
	unlock, err := s.lock()
	defer unlock()
	if err != nil {
		return nil, err
	}
	var t batch.Tally
	for _, j := range s.order() {
		if j.where == "" && !j.Held && batch.ReservationOf(j.Name) == "" {
			t.Add(batch.Demand{Jobs: 1, Image: j.Image, Shape: j.Shape, CPUs: j.CPUs, Memory: j.Memory,
				Account: j.Account, Queue: j.Queue, Oldest: j.Submitted})
		}
	}
	return t.Demand(), nil
}

// Nodes are the hosts.
func (s *System) Nodes(context.Context) ([]batch.Node, error) {
	unlock, err := s.lock()
	defer unlock()
	if err != nil {
		return nil, err
	}
	var nodes []batch.Node
	for _, name := range slices.Sorted(maps.Keys(s.hosts)) {
		h, free := s.hosts[name], s.free(name)
		n := batch.Node{Name: name, State: batch.NodeIdle, Closed: h.closed, CPUs: h.cpus, Free: free, Memory: h.memory,
			Queues: []string{"main"}}
		n.Reason, n.Ours = batch.OurReason(h.reason)
		switch {
		case h.down:
			n.State, n.Free = batch.NodeDown, 0
		case h.closed:
			n.State, n.Free = batch.NodeClosed, 0
		case free < h.cpus:
			n.State = batch.NodeBusy
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// Ended are jobs behind a cursor, which is their number.
func (s *System) Ended(_ context.Context, after batch.Cursor, limit int) ([]batch.Ended, batch.Cursor, error) {
	unlock, err := s.lock()
	defer unlock()
	if err != nil {
		return nil, after, err
	}
	from := 0
	if after != "" {
		if from, err = strconv.Atoi(string(after)); err != nil || from < 0 || from > len(s.ended) {
			return nil, after, batch.NoCursor(s.kind, after)
		}
	}
	to := min(from+limit, len(s.ended))
	return slices.Clone(s.ended[from:to]), batch.Cursor(strconv.Itoa(to)), nil
}

// Fate is how the job of a reservation ended.
func (s *System) Fate(_ context.Context, reservation, job string) (batch.Ended, error) {
	unlock, err := s.lock()
	defer unlock()
	if err != nil {
		return batch.Ended{}, err
	}
	for _, e := range s.ended {
		if e.Job == job && e.Reservation == reservation {
			return e, nil
		}
	}
	return batch.Ended{}, batch.NoJob(s.kind, job)
}

// Close closes a host, unless somebody else did.
func (s *System) Close(_ context.Context, name, reason string) error {
	unlock, err := s.lock()
	defer unlock()
	if err != nil {
		return err
	}
	h := s.hosts[name]
	if h == nil {
		return batch.NoNode(s.kind, name)
	}
	if _, ours := batch.OurReason(h.reason); !h.closed || ours {
		h.closed, h.reason = true, batch.Reason(reason)
	}
	return nil
}

// Open opens a host that we closed.
func (s *System) Open(_ context.Context, name string) error {
	unlock, err := s.lock()
	defer unlock()
	if err != nil {
		return err
	}
	h := s.hosts[name]
	if h == nil {
		return batch.NoNode(s.kind, name)
	}
	if _, ours := batch.OurReason(h.reason); h.closed && !ours {
		return batch.NotOurs(name, h.reason)
	}
	h.closed, h.reason = false, ""
	s.schedule()
	return nil
}

// Drain closes a host and lists who is there.
func (s *System) Drain(ctx context.Context, name, reason string) ([]batch.Running, error) {
	if err := s.Close(ctx, name, reason); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var jobs []batch.Running
	for _, j := range s.order() {
		if j.where == name {
			jobs = append(jobs, batch.Running{Job: j.ID, User: j.User, Account: j.Account, Ends: j.ends(),
				Reservation: batch.ReservationOf(j.Name)})
		}
	}
	return jobs, nil
}

func (j *Job) ends() time.Time {
	if j.Limit == 0 {
		return time.Time{}
	}
	return j.Started.Add(j.Limit)
}

// Reserve holds CPUs on a host.
func (s *System) Reserve(_ context.Context, b batch.Reservation) (batch.Reserved, error) {
	if err := b.Validate(); err != nil {
		return batch.Reserved{}, err
	}
	unlock, err := s.lock()
	defer unlock()
	if err != nil {
		return batch.Reserved{}, err
	}
	if j := s.reservation(b.Name); j != nil {
		return j.reserved(), nil
	}
	switch h := s.hosts[b.Host]; {
	case h == nil:
		return batch.Reserved{}, batch.NoNode(s.kind, b.Host)
	case b.Queue != "" && b.Queue != "main":
		return batch.Reserved{}, batch.Refused(s.kind, "no queue "+b.Queue)
	case b.CPUs > h.cpus:
		return batch.Reserved{}, batch.Refused(s.kind, fmt.Sprintf("host %s has %d CPUs", b.Host, h.cpus))
	}
	id := s.submit(Job{Name: batch.JobName(b.Name), User: "root", Account: b.Account, Queue: b.Queue, Host: b.Host,
		CPUs: b.CPUs, Memory: b.Memory, Limit: b.Limit})
	return s.jobs[id].reserved(), nil
}

func (s *System) reservation(name string) *Job {
	for _, j := range s.jobs {
		if j.Name == batch.JobName(name) {
			return j
		}
	}
	return nil
}

func (j *Job) reserved() batch.Reserved {
	b := batch.Reserved{Job: j.ID, Held: j.where != "", Since: j.Started,
		Reservation: batch.Reservation{Name: batch.ReservationOf(j.Name), Account: j.Account, Host: j.Host,
			CPUs:   j.CPUs,
			Memory: j.Memory, Queue: j.Queue, Limit: j.Limit}}
	if !b.Held {
		b.Why = "no room"
	}
	return b
}

// Reserved finds a reservation.
func (s *System) Reserved(_ context.Context, name string) (batch.Reserved, error) {
	unlock, err := s.lock()
	defer unlock()
	if err != nil {
		return batch.Reserved{}, err
	}
	if j := s.reservation(name); j != nil {
		return j.reserved(), nil
	}
	return batch.Reserved{}, batch.NoReservation(name)
}

// Reservations are all.
func (s *System) Reservations(context.Context) ([]batch.Reserved, error) {
	unlock, err := s.lock()
	defer unlock()
	if err != nil {
		return nil, err
	}
	var all []batch.Reserved
	for _, j := range s.order() {
		if batch.ReservationOf(j.Name) != "" {
			all = append(all, j.reserved())
		}
	}
	return all, nil
}

// Release ends a reservation.
func (s *System) Release(_ context.Context, name string) error {
	unlock, err := s.lock()
	defer unlock()
	if err != nil {
		return err
	}
	if j := s.reservation(name); j != nil {
		s.end(j.ID, batch.OutcomeCancelled, 0)
	}
	return nil
}

// Lookup adds account, queue and end.
func (s *System) Lookup(_ context.Context, a farm.Allotment) (farm.Allotment, error) {
	unlock, err := s.lock()
	defer unlock()
	if err != nil {
		return a, err
	}
	j := s.jobs[a.Job]
	if j == nil || j.where == "" {
		return a, batch.NoJob(s.kind, a.Job)
	}
	a.Account, a.Queue, a.Ends = j.Account, j.Queue, j.ends()
	return a, nil
}
