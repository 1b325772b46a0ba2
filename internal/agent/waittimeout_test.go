package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/waittest"
)

func (f *farmhouse) waitTimeout(d time.Duration) {
	f.agent.mu.Lock()
	f.agent.cfg.Batch.WaitTimeout = d
	f.agent.mu.Unlock()
}

// problem waits for the end of a job that gets no VM.
func (t *task) problem() *api.Problem {
	t.f.Helper()
	return t.endsBy(api.EventFailed, api.EventRunning)
}

// endsBy waits until a job ends by an event, before which another one must not come.
func (t *task) endsBy(event, not string) *api.Problem {
	t.f.Helper()
	for limit := time.After(waittest.Limit); ; {
		select {
		case e, ok := <-t.events:
			if !ok {
				t.f.Fatal("the job ended without a reason")
			}
			switch e.Event {
			case event:
				return e.Problem
			case not:
				t.f.Fatalf("%s comes before %s", not, event)
			}
		case <-limit:
			t.f.Fatalf("the job never ends by %s", event)
		}
	}
}

// TestWaitTimeoutWithoutHypervisor: a batch job goes back to its queue, and anybody else waits until the hypervisor is
// there again.
func TestWaitTimeoutWithoutHypervisor(t *testing.T) {
	f := newFarmhouse(t)
	f.waitTimeout(300 * time.Millisecond)
	f.host.Kill()
	hand := f.mustAsk(f.caller("8"), api.JobRequest{}) // in a batch job, and not its wrapper
	hand.until(api.EventWaiting)
	began := time.Now()
	p := f.mustAsk(f.caller("7"), api.JobRequest{Batch: "slurm"}).problem()
	if took := time.Since(began); p.Type != "grange:"+string(hyper.CodeAway) || p.Status != 503 ||
		!strings.Contains(p.Detail, "waited 300ms") || took < 300*time.Millisecond {
		t.Errorf("%+v after %v", p, took)
	}
	f.host.Restart()
	hand.until(api.EventRunning)
	hand.done()
	f.mustAsk(f.caller("7"), api.JobRequest{Batch: "slurm"}).until(api.EventRunning)
}

// TestWaitTimeoutWithAShortAbsence: a hypervisor that comes back in time costs a batch job nothing but that time.
func TestWaitTimeoutWithAShortAbsence(t *testing.T) {
	f := newFarmhouse(t)
	f.waitTimeout(time.Minute)
	f.host.Kill()
	x := f.mustAsk(f.caller("7"), api.JobRequest{Batch: "slurm"})
	x.until(api.EventWaiting)
	f.host.Restart()
	x.until(api.EventRunning)
}

// TestWaitTimeoutWithoutRoom: who holds what is named, and nothing of the claim that was waited for is left.
func TestWaitTimeoutWithoutRoom(t *testing.T) {
	f := newFarmhouse(t)
	f.waitTimeout(300 * time.Millisecond)
	all := f.agent.topo.Online
	f.agent.ledger.ClaimMetal("slurm/99", all, 0, 0)
	hand := f.mustAsk(f.caller(""), api.JobRequest{})
	hand.until(api.EventWaiting)
	batch := f.mustAsk(f.caller("7"), api.JobRequest{Batch: "slurm"})
	p := batch.problem()
	if p.Type != "grange:"+string(farm.CodeNoRoom) || p.Status != 503 ||
		!strings.Contains(p.Detail, "slurm/99 on the host holds CPUs "+all.String()) ||
		!strings.Contains(p.Detail, "waited 300ms") {
		t.Errorf("%+v", p)
	}
	f.agent.ledger.ReleaseMetal("slurm/99")
	hand.until(api.EventRunning)
	hand.done()
	if _, _, waiting := f.agent.ledger.View(0); waiting != 0 || f.agent.ledger.Charge(batch.id).Disks != "" {
		t.Errorf("%d wait, charges %v", waiting, f.agent.ledger.Charge(batch.id))
	}
	x := f.mustAsk(f.caller("7"), api.JobRequest{Batch: "slurm"})
	x.until(api.EventRunning)
	x.done()
}
