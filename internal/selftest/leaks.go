package selftest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/selftest/verdict"
	"github.com/grange-project/grange/internal/sleep"
)

const (
	// settling is how long what jobs made may take to go: an agent ends the VM of a job a little after it.
	settling = time.Minute
	// mostAtOnce bounds how many jobs run at the same time, whatever the host holds.
	mostAtOnce = 16
)

// leaks runs jobs, several at once, and compares what is on the host before and after. One job goes before: it brings
// what stays, as libvirt's own directories.
func (t *tester) leaks(ctx context.Context) verdict.Residue {
	r := verdict.Residue{Jobs: t.Jobs, AtOnce: t.atOnce()}
	if j, _ := t.run(ctx, verdict.One(t.room), []string{"--no-wait"}, "true"); j.Code != "" {
		r.Failed, r.Code, r.Details = r.Jobs, j.Code, j.Details
		return r
	}
	before, others := t.snapshot(), t.others(ctx)
	t.runMany(ctx, &r)
	for deadline := time.Now().Add(settling); ; _ = sleep.For(ctx, time.Second) {
		now := t.others(ctx)
		r.Left = verdict.Left(before, t.snapshot(), slices.Concat(others, now), slices.Equal(others, now), r.Jobs)
		if len(r.Left) == 0 || time.Now().After(deadline) || ctx.Err() != nil {
			return r
		}
	}
}

// atOnce is half of what the host can hold now: others may come.
func (t *tester) atOnce() int {
	one := verdict.One(t.room)
	byMemory := 0
	for _, n := range t.room.Host.Nodes {
		byMemory += int(n.Free / (2 * one.Memory))
	}
	return max(1, min(t.room.Free.And(t.room.Allowed).Len()/2, byMemory/2, t.Jobs, mostAtOnce))
}

func (t *tester) runMany(ctx context.Context, r *verdict.Residue) {
	next := make(chan int)
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for range r.AtOnce {
		wg.Go(func() {
			for range next {
				j, _ := t.run(ctx, verdict.One(t.room), nil, "true")
				mu.Lock()
				if done++; done%10 == 0 {
					t.say("      %d of %d jobs", done, r.Jobs)
				}
				if j.Code != "" || j.Status != 0 {
					r.Failed++
					r.Details = append(r.Details, j.Details...)
					if r.Code == "" {
						r.Code = j.Code
					}
				}
				mu.Unlock()
			}
		})
	}
	for i := 0; i < r.Jobs && ctx.Err() == nil; i++ {
		next <- i
	}
	close(next)
	wg.Wait()
}

// others are the names and IDs of VMs that are not ours, in order.
func (t *tester) others(ctx context.Context) []string {
	vms, err := t.Client.VMs(ctx)
	if err != nil {
		return nil
	}
	var all []string
	for _, v := range slices.DeleteFunc(vms, func(v api.VM) bool { return t.isOurs(v) }) {
		all = append(all, v.Name, v.ID)
	}
	slices.Sort(all)
	return all
}
