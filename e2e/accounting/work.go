package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/farm"
)

// work has jobs run on all CPUs but one, and cloud VMs one after the other on the last. It returns how many jobs were
// run to their end, whatever that was.
func (s *site) work(jobs, vms int) int {
	var ended atomic.Int64
	var all sync.WaitGroup
	all.Go(func() {
		for i := range vms {
			if s.ctx.Err() == nil {
				s.cloudVM(i)
			}
		}
	})
	todo := make(chan int)
	for range max(runtime.NumCPU()-1, 1) {
		all.Go(func() {
			for n := range todo {
				s.job(api.NewID(), 100+rand.IntN(800), n%3)
				ended.Add(1)
			}
		})
	}
	for n := range jobs {
		if s.ctx.Err() != nil {
			break
		}
		if n%50 == 49 {
			fmt.Printf("  %d jobs\n", n+1)
		}
		todo <- n
	}
	close(todo)
	all.Wait()
	return int(ended.Load())
}

// job runs one as its wrapper does: it comes again when the agent was killed, and gives the VM back at the end.
func (s *site) job(id string, milliseconds, status int) {
	last := ""
	r := api.JobRequest{ID: id, Dir: "/", Argv: []string{"burn", fmt.Sprint(milliseconds), fmt.Sprint(status)}}
	for last == "" && s.ctx.Err() == nil {
		err := s.client().Job(s.ctx, r, func(e api.JobEvent) error {
			switch e.Event {
			case api.EventEnded, api.EventFailed, api.EventLost:
				last = e.Event
				return errOver
			}
			return nil
		})
		if problem := new(api.Problem); errors.As(err, &problem) && problem.Status < 500 {
			return
		}
		if last == "" {
			time.Sleep(20 * time.Millisecond)
		}
	}
	s.await(time.Minute, func() error { _, err := s.client().Done(s.ctx, id); return err })
}

var errOver = errors.New("the job is over")

// cloudVM has one VM run for a while, and deletes it.
func (s *site) cloudVM(n int) {
	w := fleet.WantedVM{ID: api.NewID(), Name: fmt.Sprintf("vm-%d", n), Project: "people", Owner: "ann",
		Power: string(farm.PowerOn), Image: "micro", Hostname: fmt.Sprintf("vm-%d", n),
		Shape: fleet.Shape{Name: "tiny", CPUs: 1, Memory: 64 << 20}}
	want := func(power farm.Power) {
		w.Power = string(power)
		text, _ := json.Marshal(fleet.WantedList{Revision: int64(2*n + 1), VMs: []fleet.WantedVM{w}})
		atomicfile.Write(s.path("wanted.json"), text, 0o600)
	}
	if err := s.place(w); err != nil {
		fmt.Println("  a VM is not entered:", err)
	}
	if err := s.place(w); err != nil {
		fmt.Println("  a VM is not entered:", err)
	}
	want(farm.PowerOn)
	time.Sleep(time.Duration(1500+rand.IntN(1500)) * time.Millisecond)
	want(farm.PowerDeleted)
	s.await(30*time.Second, func() error {
		vms, err := s.client().VMs(s.ctx)
		for _, v := range vms {
			if v.ID == w.ID && v.State != string(farm.VMGone) {
				return errors.New("it is there")
			}
		}
		return err
	})
	if err := s.leave(w.ID); err != nil {
		fmt.Println("  a VM is not deleted:", err)
	}
}
