package agent

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/numa"
)

// faulty fails one step of the life of each machine.
type faulty struct {
	hyper.Hypervisor
	at atomic.Value // the step, a string; "": none
}

var errInjected = &farm.Error{Kind: farm.Internal, Code: machine.CodeBadPins, Message: "injected by the test"}

func (f *faulty) step(name string) error {
	if f.at.Load() == name {
		return errInjected
	}
	return nil
}

func (f *faulty) Start(ctx context.Context, m hyper.Machine) (hyper.Applied, error) {
	if err := f.step("start"); err != nil {
		return hyper.Applied{}, err
	}
	applied, err := f.Hypervisor.Start(ctx, m)
	if err == nil {
		err = f.step("started") // it is there, and nobody was told
	}
	return applied, err
}

func (f *faulty) Observe(ctx context.Context, id string) (numa.Observed, error) {
	seen, err := f.Hypervisor.Observe(ctx, id)
	switch {
	case f.at.Load() == "observe":
		err = errInjected
	case f.at.Load() == "pins":
		seen = numa.Observed{}
	}
	return seen, err
}

func (f *faulty) Resume(ctx context.Context, id string) error {
	if err := f.step("resume"); err != nil {
		return err
	}
	return f.Hypervisor.Resume(ctx, id)
}

// TestFaultAtEachStep fails each step to the first instruction, for each that machines are made for: nothing is left of
// it on the host, and the next one starts.
func TestFaultAtEachStep(t *testing.T) {
	users := map[string]func(f *farmhouse){
		"job":       func(f *farmhouse) { f.fails("") },
		"batch job": func(f *farmhouse) { f.fails("7") },
		"worker": func(f *farmhouse) {
			j := f.worker()
			<-j.over
			if err := j.workerRefused(); !farm.IsCode(err, machine.CodeBadPins) {
				f.Errorf("worker: %v", err)
			}
			f.nothingLeft()
		},
		"cloud VM": func(f *farmhouse) {
			w := f.cloud()
			f.want(w)
			f.sees("the reason", w, func(o fleet.Observed) bool {
				return strings.HasPrefix(o.Reason, string(machine.CodeBadPins))
			})
			w.Power = string(farm.PowerDeleted)
			f.want(w)
			f.seesState(w, farm.VMGone)
			f.nothingLeft()
		},
	}
	for who, start := range users {
		for _, step := range []string{"start", "started", "observe", "pins", "resume"} {
			t.Run(who+"/"+step, func(t *testing.T) {
				f := newFarmhouse(t)
				f.close()
				fault := &faulty{}
				fault.at.Store(step)
				f.wrap = func(h hyper.Hypervisor) hyper.Hypervisor {
					fault.Hypervisor = h
					return fault
				}
				f.open()
				start(f)
				fault.at.Store("")
				f.mustAsk(f.caller(""), api.JobRequest{}).until(api.EventRunning)
			})
		}
	}
}

// worker asks for a worker.
func (f *farmhouse) worker() *job {
	f.Helper()
	addresses, err := farm.ParseAddressPool("192.0.2.2-192.0.2.6/29")
	if err != nil {
		f.Fatal(err)
	}
	f.agent.mu.Lock()
	f.agent.cfg.Worker = config.Worker{Controller: "c", Network: "bridge:br0", Addresses: addresses}
	f.agent.mu.Unlock()
	image, err := f.agent.images.Get("micro")
	if err != nil {
		f.Fatal(err)
	}
	j, err := f.agent.workerDesk.begin(&api.WorkerRequest{Name: "vwn1", Image: image.Digest}, "micro", f.caller(""))
	if err != nil {
		f.Fatal(err)
	}
	f.agent.jobs.Go(j.run)
	return j
}

// fails has a job end by the fault, with nothing left.
func (f *farmhouse) fails(batchJob string) {
	f.Helper()
	task := f.mustAsk(f.caller(batchJob), api.JobRequest{})
	if code := task.failed(); code != string(machine.CodeBadPins) {
		f.Errorf("the job ended with %s", code)
	}
	<-task.job.over
	f.nothingLeft()
}

// pageless refuses the first machine in huge pages, as QEMU does where a pool is smaller than was planned.
type pageless struct {
	hyper.Hypervisor
	refused atomic.Int32
}

func (p *pageless) Start(ctx context.Context, m hyper.Machine) (hyper.Applied, error) {
	if m.Plan.Cells[0].PageSize > 0 && p.refused.Add(1) == 1 {
		return hyper.Applied{}, &farm.Error{Kind: farm.Internal, Code: hyper.CodeRefused,
			Message: "unable to map backing store for guest RAM: Cannot allocate memory"}
	}
	return p.Hypervisor.Start(ctx, m)
}

// TestPlanAgain: a VM that was planned in huge pages which are gone is planned anew, by what the host has.
func TestPlanAgain(t *testing.T) {
	f := newFarmhouse(t)
	f.close()
	h := &pageless{}
	f.wrap = func(inner hyper.Hypervisor) hyper.Hypervisor {
		h.Hypervisor = inner
		return h
	}
	f.open()
	before := f.agent.topo
	before.Nodes = slices.Clone(before.Nodes)
	for i := range before.Nodes {
		before.Nodes[i].Pages = []farm.HugePages{{Size: 2 * farm.MiB, Total: 4096, Free: 4096}}
	}
	f.agent.ledger.SetTopology(before, numa.Reserve{})
	f.agent.pageMounts = func() []farm.Bytes { return []farm.Bytes{2 * farm.MiB} }
	f.mustAsk(f.caller(""), api.JobRequest{}).until(api.EventRunning)
	if h.refused.Load() != 1 {
		t.Errorf("refused %d times", h.refused.Load())
	}
}
