// Package batchtest is the contract of batch.System as tests. Every driver runs it, against the real system, recorded
// answers or a model of it; it knows none of them.
package batchtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
)

// Lab is a batch system under test. It has two hosts at least, is idle when a test begins, and is left so.
type Lab struct {
	// Open makes a driver, as a restarted process would: it knows nothing but what the system, and its own files, keep.
	Open func(t *testing.T) batch.System
	// Hosts are the names of two hosts with two CPUs or more.
	Hosts [2]string
	// Account and Queue may be used by jobs and reservations.
	Account, Queue string
	// Pend queues jobs that stay pending until they are cancelled by Cancel.
	Pend func(t *testing.T, j Job) (id string)
	// Run starts a job on a host, and returns when it runs.
	Run func(t *testing.T, host string, j Job) (id string)
	// Finish lets a running job end with this exit status, and returns when the system knows.
	Finish func(t *testing.T, id string, status int)
	// Cancel ends a job, pending or running, as its user would.
	Cancel func(t *testing.T, id string)
	// AdminClose and AdminOpen are what an administrator does by hand.
	AdminClose func(t *testing.T, host, reason string)
	AdminOpen  func(t *testing.T, host string)
	// NoImages, NoMemory: a pending job does not tell them.
	NoImages, NoMemory bool
	// NoAccounts: the system has no accounts of its own, and says nothing of them.
	NoAccounts bool
	// NoReasons: the system keeps no reasons of administrators.
	NoReasons bool
	// Coarse: exit statuses of ended jobs are lost, as in bare lists of jobs.
	Coarse bool
}

// Job is what the suite submits: one CPU a job unless CPUs says otherwise.
type Job struct {
	Image, Shape string
	CPUs         int
	Memory       farm.Bytes
	Limit        time.Duration
}

const timeout = 3 * time.Minute // a busy machine is no broken one

// Run runs the contract.
func Run(t *testing.T, l Lab) {
	for _, c := range []struct {
		name string
		test func(*suite)
	}{
		{"nodes", (*suite).nodes},
		{"demand", (*suite).demand},
		{"ended once", (*suite).ended},
		{"close and open", (*suite).closes},
		{"an administrator's closing", (*suite).admin},
		{"drain", (*suite).drain},
		{"reserve and release", (*suite).reserves},
		{"reserve in a full host", (*suite).waits},
		{"refused reservations", (*suite).refused},
		{"lookup", (*suite).lookup},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*timeout)
			defer cancel()
			s := &suite{T: t, l: l, ctx: ctx, s: l.Open(t)}
			c.test(s)
			s.leftovers()
		})
	}
}

type suite struct {
	*testing.T
	l   Lab
	ctx context.Context
	s   batch.System
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *suite) wantKind(what string, err error, want farm.Kind) {
	s.Helper()
	if e := new(farm.Error); !errors.As(err, &e) || e.Kind != want {
		s.Errorf("%s: %v, not of kind %q", what, err, want)
	}
}

// eventually waits for what the system does in its own time.
func (s *suite) eventually(what string, ok func() bool) {
	s.Helper()
	for deadline := time.Now().Add(timeout); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("never: %s", what)
		}
	}
}

func (s *suite) leftovers() {
	if b, err := s.s.Reservations(s.ctx); err != nil || len(b) > 0 {
		s.Errorf("reservations left: %v, %v", b, err)
	}
	for _, n := range s.list() {
		if n.Closed {
			s.Errorf("host %s is left closed: %s", n.Name, n.Reason)
		}
	}
}

func (s *suite) list() []batch.Node {
	s.Helper()
	n, err := s.s.Nodes(s.ctx)
	s.must(err)
	return n
}

func (s *suite) node(name string) batch.Node {
	s.Helper()
	for _, n := range s.list() {
		if n.Name == name {
			return n
		}
	}
	s.Fatalf("host %s is not listed", name)
	return batch.Node{}
}

func (s *suite) nodes() {
	nodes := s.list()
	if !slices.IsSortedFunc(nodes, func(a, b batch.Node) int { return compare(a.Name, b.Name) }) {
		s.Error("nodes are not in the order of their names")
	}
	for _, name := range s.l.Hosts {
		n := s.node(name)
		if n.State != batch.NodeIdle || n.Closed || n.CPUs < 2 || n.Free != n.CPUs || n.Memory <= 0 {
			s.Errorf("an idle host is %+v", n)
		}
	}
	id := s.l.Run(s.T, s.l.Hosts[0], Job{})
	s.eventually("a host with a job is busy", func() bool {
		n := s.node(s.l.Hosts[0])
		return n.State == batch.NodeBusy && n.Free == n.CPUs-1
	})
	s.l.Finish(s.T, id, 0)
	s.eventually("and idle without", func() bool { return s.node(s.l.Hosts[0]).State == batch.NodeIdle })
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (s *suite) demand() {
	wanted := func() int {
		d, err := s.s.Demand(s.ctx)
		s.must(err)
		n := 0
		for _, line := range d {
			n += line.Jobs
		}
		return n
	}
	if n := wanted(); n != 0 {
		s.Fatalf("an empty queue wants %d jobs", n)
	}
	var ids []string
	defer func() {
		for _, id := range ids {
			s.l.Cancel(s.T, id)
		}
		s.eventually("cancelled jobs want nothing", func() bool { return wanted() == 0 })
	}()
	big := Job{Image: "sl9", Shape: "big", CPUs: 2, Memory: 512 << 20}
	for _, j := range []Job{big, {CPUs: 1}, big, big} {
		ids = append(ids, s.l.Pend(s.T, j))
	}
	var got []batch.Demand
	s.eventually("four jobs are wanted", func() bool {
		var err error
		got, err = s.s.Demand(s.ctx)
		s.must(err)
		return wanted() == 4
	})
	at := slices.IndexFunc(got, func(d batch.Demand) bool { return d.Jobs == 3 })
	if len(got) != 2 || at < 0 {
		s.Fatalf("two kinds of jobs, 3 and 1, are %+v", got)
	}
	three, one := got[at], got[1-at]
	if three.CPUs != 2 || one.CPUs != 1 || three.Queue != s.l.Queue || !s.l.NoAccounts && three.Account != s.l.Account {
		s.Errorf("wanted are %+v", got)
	}
	if !s.l.NoImages && (three.Image != "sl9" || three.Shape != "big" || one.Image != "" || one.Shape != "") {
		s.Errorf("the image and shape of pending jobs are lost: %+v", got)
	}
	if !s.l.NoMemory && three.Memory != big.Memory {
		s.Errorf("memory of a pending job is %v", three.Memory)
	}
}

// all reads everything behind a cursor, so many at a time.
func (s *suite) all(from batch.Cursor, page int) ([]batch.Ended, batch.Cursor) {
	s.Helper()
	var all []batch.Ended
	for {
		jobs, next, err := s.s.Ended(s.ctx, from, page)
		s.must(err)
		if len(jobs) > page {
			s.Fatalf("%d jobs, asked for %d", len(jobs), page)
		}
		all, from = append(all, jobs...), next
		if len(jobs) < page {
			return all, from
		}
	}
}

func ids(jobs []batch.Ended) []string {
	var list []string
	for _, j := range jobs {
		list = append(list, j.Job)
	}
	slices.Sort(list)
	return list
}

// ended holds the cursor: whatever the page, across restarts, each job once and none left out.
func (s *suite) ended() {
	_, cursor := s.all("", 100)
	before := cursor
	var want []string
	ours := func(jobs []batch.Ended) []batch.Ended { // jobs of tests before this one may come late
		return slices.DeleteFunc(jobs, func(j batch.Ended) bool { return !slices.Contains(want, j.Job) })
	}
	finish := func(status int) {
		id := s.l.Run(s.T, s.l.Hosts[0], Job{})
		s.l.Finish(s.T, id, status)
		want = append(want, id)
	}
	var seen []batch.Ended
	read := func(page int) {
		var fresh []batch.Ended
		s.eventually("the jobs that ended are listed", func() bool {
			more, next := s.all(cursor, page)
			fresh, cursor = append(fresh, ours(more)...), next
			return len(seen)+len(fresh) >= len(want)
		})
		seen = append(seen, fresh...)
	}
	for i := range 3 {
		finish(i)
	}
	read(1)
	s.s = s.l.Open(s.T) // a restarted server has the cursor only
	finish(7)
	read(100)
	if more, next := s.all(cursor, 100); len(more) > 0 || next == "" {
		s.Errorf("read again: %v, cursor %q", ids(more), next)
	}
	slices.Sort(want)
	if got := ids(seen); !slices.Equal(got, want) {
		s.Fatalf("ended are %v, not %v", got, want)
	}
	// A system may list a job late, or half known for a moment.
	var got []string
	defer func() { s.Logf("from an older cursor, at last: %v of %v", got, want) }()
	s.eventually("an older cursor leads to the same jobs", func() bool {
		again, _ := s.all(before, 2)
		got = ids(ours(again))
		return slices.Equal(got, want)
	})
	if from, ok := s.s.(batch.Resumer); ok {
		if again, _ := s.all(from.Behind(seen[0].Finished), 100); !slices.Equal(ids(ours(again)), want) {
			s.Errorf("from the first end on, ended are %v, not %v", ids(ours(again)), want)
		}
		if again, _ := s.all(from.Behind(time.Now().Add(time.Hour)), 100); len(ours(again)) > 0 {
			s.Errorf("behind a time to come, ended are %v", ids(again))
		}
	}
	for _, j := range seen {
		if j.Started.IsZero() || j.Finished.Before(j.Started) || j.User == "" || j.CPUs != 1 || j.Queue != s.l.Queue ||
			!slices.Contains(j.Hosts, s.l.Hosts[0]) {
			s.Errorf("ended is %+v", j)
		}
		if !s.l.NoAccounts && j.Account != s.l.Account {
			s.Errorf("account of an ended job is %q", j.Account)
		}
	}
	if !s.l.Coarse {
		for i, status := range []int{0, 1, 2, 7} {
			outcome := batch.OutcomeFailed
			if status == 0 {
				outcome = batch.OutcomeDone
			}
			if n := slices.IndexFunc(seen, func(j batch.Ended) bool {
				return j.Code == status &&
					j.Outcome == outcome
			}); n < 0 {
				s.Errorf("job %d with status %d is not among %+v", i, status, seen)
			}
		}
	}
	if _, _, err := s.s.Ended(s.ctx, "no cursor of ours", 1); err == nil {
		s.Error("an invalid cursor is taken for the start: jobs would be counted twice")
	}
}

func (s *suite) closes() {
	host := s.l.Hosts[0]
	for i, reason := range []string{"three VMs did not start", "three VMs did not start",
		"a \"worse\" reason\nin two lines"} {
		s.must(s.s.Close(s.ctx, host, reason))
		n := s.node(host)
		if !n.Closed || !n.Ours || n.State != batch.NodeClosed || n.Free != 0 {
			s.Errorf("closed %d times, the host is %+v", i+1, n)
		}
		if want, _ := batch.OurReason(batch.Reason(reason)); n.Reason != want {
			s.Errorf("reason is %q, not %q", n.Reason, want)
		}
	}
	if other := s.node(s.l.Hosts[1]); other.Closed {
		s.Errorf("another host is closed as well: %+v", other)
	}
	s.s = s.l.Open(s.T) // the next process may open what this one closed
	for range 2 {
		s.must(s.s.Open(s.ctx, host))
		s.eventually("an opened host is idle", func() bool {
			n := s.node(host)
			return !n.Closed &&
				n.State == batch.NodeIdle
		})
	}
	s.wantKind("close no host", s.s.Close(s.ctx, "no-such-host", "x"), farm.NotFound)
	s.wantKind("open no host", s.s.Open(s.ctx, "no-such-host"), farm.NotFound)
}

func (s *suite) admin() {
	host := s.l.Hosts[0]
	s.l.AdminClose(s.T, host, "disk replaced by Eva")
	defer s.l.AdminOpen(s.T, host)
	check := func(when string) {
		s.Helper()
		if n := s.node(host); !n.Closed || n.Ours || n.Reason == "" || !s.l.NoReasons &&
			n.Reason != "disk replaced by Eva" {
			s.Errorf("%s: %+v", when, n)
		}
	}
	check("closed by an administrator")
	s.must(s.s.Close(s.ctx, host, "ours"))
	check("closed by us as well")
	s.wantKind("open what an administrator closed", s.s.Open(s.ctx, host), farm.Conflict)
	check("after we tried to open it")
	s.l.AdminOpen(s.T, host)
	s.must(s.s.Close(s.ctx, host, "ours"))
	s.l.AdminClose(s.T, host, "disk replaced by Eva") // over our closing
	check("closed by an administrator over us")
	s.wantKind("open what an administrator took over", s.s.Open(s.ctx, host), farm.Conflict)
}

func (s *suite) drain() {
	host := s.l.Hosts[0]
	id := s.l.Run(s.T, host, Job{Limit: time.Hour})
	other := s.l.Run(s.T, s.l.Hosts[1], Job{})
	defer s.l.Cancel(s.T, other)
	for range 2 {
		jobs, err := s.s.Drain(s.ctx, host, "kernel update")
		s.must(err)
		if len(jobs) != 1 || jobs[0].Job != id || jobs[0].User == "" {
			s.Fatalf("the job on the drained host is %+v, not %s", jobs, id)
		}
		if left := time.Until(jobs[0].Ends); left < 50*time.Minute || left > 61*time.Minute {
			s.Errorf("a job of one hour ends in %v", left)
		}
	}
	s.l.Finish(s.T, id, 0)
	s.eventually("the host is empty", func() bool {
		jobs, err := s.s.Drain(s.ctx, host, "kernel update")
		s.must(err)
		return len(jobs) == 0
	})
	s.must(s.s.Open(s.ctx, host))
	s.eventually("it is open", func() bool { return !s.node(host).Closed })
}

func (s *suite) reserves() {
	host := s.l.Hosts[1]
	var free int
	s.eventually("the host is idle", func() bool { n := s.node(host); free = n.Free; return n.State == batch.NodeIdle })
	b := batch.Reservation{Name: fmt.Sprintf("cloud-%d", time.Now().UnixNano()), Account: s.l.Account, Queue: s.l.Queue,
		Host: host, CPUs: 2, Memory: 256 << 20, Limit: 2 * time.Hour}
	first, err := s.s.Reserve(s.ctx, b)
	s.must(err)
	again, err := s.l.Open(s.T).Reserve(s.ctx, b) // our process died behind the first, and does not know
	s.must(err)
	if first.Job == "" || again.Job != first.Job {
		s.Errorf("reserved twice: %s and %s", first.Job, again.Job)
	}
	s.s = s.l.Open(s.T)
	var held batch.Reserved
	s.eventually("the reservation is held", func() bool {
		held, err = s.s.Reserved(s.ctx, b.Name)
		s.must(err)
		return held.Held
	})
	if held.Name != b.Name || held.Host != host || held.CPUs != 2 || held.Since.IsZero() || !s.l.NoAccounts &&
		held.Account != s.l.Account {
		s.Errorf("held is %+v", held)
	}
	s.eventually(fmt.Sprintf("2 of %d CPUs are not free", free), func() bool { return s.node(host).Free == free-2 })
	if n := len(s.list()); n != len(s.listWithout(b.Name)) {
		s.Error("the VM is a node")
	}
	jobs, err := s.s.Drain(s.ctx, host, "who is there")
	s.must(err)
	if len(jobs) != 1 || jobs[0].Reservation != b.Name {
		s.Errorf("on the host are %+v", jobs)
	}
	s.must(s.s.Open(s.ctx, host))
	_, cursor := s.all("", 1000)
	for range 2 {
		s.must(s.s.Release(s.ctx, b.Name))
	}
	s.eventually("the capacity is back", func() bool { n := s.node(host); return !n.Closed && n.Free == free })
	s.must(s.s.Release(s.ctx, b.Name))
	_, err = s.s.Reserved(s.ctx, b.Name)
	s.wantKind("a released reservation", err, farm.NotFound)
	// The placeholder ended once, and accounting can tell it from jobs.
	var ended []batch.Ended
	s.eventually("the placeholder has ended", func() bool {
		var more []batch.Ended
		more, cursor = s.all(cursor, 100)
		ended = append(ended, more...)
		return len(ended) > 0
	})
	if len(ended) != 1 || ended[0].Reservation != b.Name || ended[0].Job != first.Job {
		s.Errorf("of one reservation ended %+v", ended)
	}
	_, err = s.s.Reserved(s.ctx, "never-made")
	s.wantKind("a reservation that never was", err, farm.NotFound)
	s.must(s.s.Release(s.ctx, "never-made"))
}

func (s *suite) listWithout(vm string) []batch.Node {
	return slices.DeleteFunc(s.list(), func(n batch.Node) bool { return n.Name == vm })
}

// waits: a host that is full holds nothing, and says so; when it has room, it does.
func (s *suite) waits() {
	host := s.l.Hosts[0]
	id := s.l.Run(s.T, host, Job{CPUs: s.node(host).CPUs})
	b := batch.Reservation{Name: fmt.Sprintf("late-%d", time.Now().UnixNano()), Account: s.l.Account, Queue: s.l.Queue,
		Host: host, CPUs: 1, Limit: time.Hour}
	got, err := s.s.Reserve(s.ctx, b)
	s.must(err)
	if got.Held || !got.Since.IsZero() {
		s.Errorf("a full host holds %+v", got)
	}
	if d, err := s.s.Demand(s.ctx); err != nil || len(d) > 0 {
		s.Errorf("a waiting reservation is taken for demand: %+v, %v", d, err)
	}
	s.l.Finish(s.T, id, 0)
	s.eventually("it is held when there is room", func() bool {
		got, err := s.s.Reserved(s.ctx, b.Name)
		s.must(err)
		return got.Held
	})
	s.must(s.s.Release(s.ctx, b.Name))
	s.eventually("it is given back", func() bool { n := s.node(host); return n.Free == n.CPUs })
	// One that never was held is released as well.
	id = s.l.Run(s.T, host, Job{CPUs: s.node(host).CPUs})
	b.Name += "-b"
	_, err = s.s.Reserve(s.ctx, b)
	s.must(err)
	s.must(s.s.Release(s.ctx, b.Name))
	s.l.Finish(s.T, id, 0)
	s.eventually("nothing is held", func() bool {
		n := s.node(host)
		return n.Free == n.CPUs &&
			n.State == batch.NodeIdle
	})
}

func (s *suite) refused() {
	good := batch.Reservation{Name: "refused", Account: s.l.Account, Queue: s.l.Queue, Host: s.l.Hosts[0], CPUs: 1,
		Limit: time.Hour}
	for name, change := range map[string]func(*batch.Reservation){
		"no name":       func(b *batch.Reservation) { b.Name = "" },
		"an odd name":   func(b *batch.Reservation) { b.Name = "a b;c" },
		"no CPUs":       func(b *batch.Reservation) { b.CPUs = 0 },
		"no host":       func(b *batch.Reservation) { b.Host = "" },
		"an option":     func(b *batch.Reservation) { b.Host = "--no-such-option" },
		"another host":  func(b *batch.Reservation) { b.Host = "no-such-host" },
		"another queue": func(b *batch.Reservation) { b.Queue = "no-such-queue" },
		"a giant":       func(b *batch.Reservation) { b.CPUs = 1 << 14 },
	} {
		b := good
		change(&b)
		if got, err := s.s.Reserve(s.ctx, b); err == nil {
			s.Errorf("%s: reserved %+v", name, got)
			s.must(s.s.Release(s.ctx, b.Name))
		} else if e := new(farm.Error); !errors.As(err, &e) || e.Kind != farm.Invalid && e.Kind != farm.NotFound {
			s.Errorf("%s: %v", name, err)
		}
	}
}

func (s *suite) lookup() {
	id := s.l.Run(s.T, s.l.Hosts[0], Job{Limit: time.Hour})
	known := farm.Allotment{System: s.s.Name(), Job: id, Slots: 3, Memory: 5}
	got, err := s.s.Lookup(s.ctx, known)
	s.must(err)
	if got.Queue != s.l.Queue || !s.l.NoAccounts && got.Account != s.l.Account || got.Slots != 3 || got.Memory != 5 ||
		got.Job != id {
		s.Errorf("looked up is %+v", got)
	}
	if left := time.Until(got.Ends); left < 50*time.Minute || left > 61*time.Minute {
		s.Errorf("a job of one hour ends in %v", left)
	}
	s.l.Finish(s.T, id, 0)
	s.eventually("a job that has ended is not found", func() bool {
		_, err = s.s.Lookup(s.ctx, known)
		return err != nil
	})
	s.wantKind("a job that has ended", err, farm.NotFound)
	known.Job = "99999999"
	_, err = s.s.Lookup(s.ctx, known)
	s.wantKind("a job that never was", err, farm.NotFound)
}
