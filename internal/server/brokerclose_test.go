package server

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/fake"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/broker"
	"github.com/grange-project/grange/internal/store"
)

// tired is a batch system that takes its time for each host, and counts how often it is asked.
type tired struct {
	*fake.System
	takes  time.Duration
	drains atomic.Int32
}

func (s *tired) Drain(ctx context.Context, host, reason string) ([]batch.Running, error) {
	s.drains.Add(1)
	select {
	case <-ctx.Done():
		return nil, batch.Away(farm.Slurm, ctx.Err())
	case <-time.After(s.takes):
		return s.System.Drain(ctx, host, reason)
	}
}

// newTiredLab is a batchLab with so many hosts of cell farm, as h0000; n1 and n2 are not known to the batch system.
func newTiredLab(t *testing.T, hosts int) (*batchLab, *tired) {
	l := newBatchLab(t)
	names := make([]string, hosts)
	l.update(func(tx *store.Tx) error {
		for i := range names {
			h := l.hosts["n1"]
			names[i] = fmt.Sprintf("h%04d", i)
			h.Name, h.ID = names[i], "id-"+names[i]
			if err := tx.InsertHost(h); err != nil {
				return err
			}
		}
		return nil
	})
	system := &tired{System: fake.New(farm.Slurm, 16, 64, names...), takes: 30 * time.Millisecond}
	l.slurm, l.brokers["farm"] = system.System, system
	return l, system
}

// passes does a pass, and tells how often the batch system was asked about a host, and which of them are open there.
func (l *batchLab) passes(s *tired) (drains int, open []string) {
	l.t.Helper()
	s.drains.Store(0)
	l.loop()
	nodes, err := s.Nodes(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	for _, n := range nodes {
		if !n.Closed {
			open = append(open, n.Name)
		}
	}
	l.pass(10 * time.Second)
	return int(s.drains.Load()), open
}

// However many hosts are closed, VMs of the cell are reserved at the next pass and given back; hosts that are closed
// already, and empty, are left in peace, and one that somebody opens is closed again.
func TestManyAreClosedInTheBatchSystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 1500 // of which a pass closes fewer than half
		l, system := newTiredLab(t, many)
		busy := system.Submit(fake.Job{User: "eva", Host: "h1400", CPUs: 1})
		if _, err := l.Hosts.Drain(t.Context(), site, []string{"h0*", "h14*"},
			DrainOrder{Reason: "new disks"}); err != nil {
			t.Fatal(err)
		}
		v := l.create(ann, web("web"))[0]
		begun := time.Now()
		drains, open := l.passes(system)
		if took := time.Since(begun); took > broker.Timeout/2 || drains < 600 || len(open) != many-drains {
			t.Errorf("%v for %d hosts, and %d are open", took, drains, len(open))
		}
		if got := l.get(v.ID); got.HostName < "h1000" || got.HostName >= "h14" {
			t.Errorf("%+v", got)
		}
		if h, err := l.Hosts.Get(t.Context(), site, "h1400"); err != nil || len(h.Warnings) != 1 ||
			h.Warnings[0] != "not closed in slurm yet" {
			t.Errorf("%v %v", h.Warnings, err)
		}
		l.passes(system)
		if drains, open = l.passes(system); drains > 100 || len(open) != 400 {
			t.Errorf("asked about %d, and %d are open", drains, len(open))
		}
		if h, err := l.Hosts.Get(t.Context(), site, "h1400"); err != nil || len(h.Warnings) != 0 || h.Jobs != 1 {
			t.Errorf("%v %v", h, err)
		}
		if drains, _ = l.passes(system); drains != 1 { // where there is a job
			t.Errorf("asked about %d", drains)
		}
		system.AdminOpen("h0007")
		system.End(busy, batch.OutcomeDone, 0)
		if drains, open = l.passes(system); drains != 2 || len(open) != 400 {
			t.Errorf("asked about %d, and %d are open", drains, len(open))
		}
		if h, err := l.Hosts.Get(t.Context(), site, "h1400"); err != nil || h.Jobs != 0 {
			t.Errorf("%v %v", h, err)
		}
		if drains, _ = l.passes(system); drains != 0 {
			t.Errorf("asked about %d", drains)
		}
		l.pass(broker.CountAgain)
		for _, h := range l.hosts {
			l.seen(h)
		}
		if drains, _ = l.passes(system); drains < 600 {
			t.Errorf("asked about %d", drains)
		}
	})
}

// What is known of closed hosts is not lost while the batch system is away, and a new leader's first pass does not
// pretend to know.
func TestClosedHostsAreKnown(t *testing.T) {
	l, system := newTiredLab(t, 2)
	system.takes = 0
	system.Submit(fake.Job{User: "eva", Host: "h0001", CPUs: 1})
	jobs := func() int {
		t.Helper()
		h, err := l.Hosts.Get(t.Context(), site, "h0001")
		if err != nil {
			t.Fatal(err)
		}
		return h.Jobs
	}
	if _, err := l.Hosts.Close(t.Context(), site, []string{"h0*"}, "tests"); err != nil {
		t.Fatal(err)
	}
	if drains, open := l.passes(system); drains != 2 || len(open) != 0 || jobs() != 1 {
		t.Errorf("asked about %d, open: %v, jobs: %d", drains, open, jobs())
	}
	system.Fail(errors.New("slurmctld is down"))
	if err := l.brokersOnce(); err != nil {
		t.Fatal(err)
	}
	system.Fail(nil)
	if drains, _ := l.passes(system); drains != 1 || jobs() != 1 {
		t.Errorf("asked about %d, jobs: %d", drains, jobs())
	}
	// its reason there follows
	if _, err := l.Hosts.Close(t.Context(), site, []string{"h0000"}, "other tests"); err != nil {
		t.Fatal(err)
	}
	if drains, _ := l.passes(system); drains != 2 {
		t.Errorf("asked about %d", drains)
	}
	l.Server.brokers = broker.New(l.Server.brokers.Options) // another server leads
	if drains, _ := l.passes(system); drains != 2 || jobs() != 1 {
		t.Errorf("asked about %d, jobs: %d", drains, jobs())
	}
}

// A call decodes what is noted of a cell's batch system once, however many VMs and hosts it shows.
func TestBrokerNoteIsReadOnce(t *testing.T) {
	l := newBatchLab(t)
	if _, err := l.Hosts.Close(t.Context(), site, []string{"n*"}, "tests"); err != nil {
		t.Fatal(err)
	}
	l.loop()
	err := l.look(t.Context(), site, "host.read", func(c *call) error {
		if note, err := c.brokerNote("farm"); err != nil || len(note.Hosts) != 2 {
			t.Errorf("%+v %v", note, err)
		}
		if n := testing.AllocsPerRun(10, func() { _, _ = c.brokerNote("farm") }); n != 0 {
			t.Errorf("the second time it allocates %v times", n)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
