package lookups

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// TestLookupsDoNotMultiply: whatever becomes of it, a job is asked for once at a time, and a batch system that does not
// answer is left in peace.
func TestLookupsDoNotMultiply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		asked, now, most := map[string]int{}, 0, 0
		l := New(func(ctx context.Context, a farm.Allotment, _ int) (farm.Allotment, error) {
			mu.Lock()
			asked[a.Job]++
			now++
			most = max(most, now)
			mu.Unlock()
			defer func() { mu.Lock(); now--; mu.Unlock() }()
			time.Sleep(time.Second)
			switch a.Job {
			case "sick":
				return a, errors.New("no answer")
			case "stuck":
				<-ctx.Done()
				return a, context.Cause(ctx)
			}
			a.Queue = "of " + a.Job
			return a, nil
		})
		c := func(job string) farm.Allotment { return farm.Allotment{System: farm.Slurm, Job: job} }
		ask := func(jobs ...string) (failed int) {
			var all sync.WaitGroup
			for _, job := range jobs {
				all.Go(func() {
					told, err := l.Of(t.Context(), c(job), 0)
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						failed++
					} else if told.Queue != "of "+job {
						t.Errorf("%q of job %s", told.Queue, job)
					}
				})
			}
			all.Wait()
			return failed
		}
		var tasks, jobs []string
		for i := range 20 {
			tasks, jobs = append(tasks, "1"), append(jobs, fmt.Sprint(100+i))
		}
		if failed := ask(tasks...); failed != 0 || asked["1"] != 1 {
			t.Errorf("20 tasks of one job: asked %d times, %d failed", asked["1"], failed)
		}
		if failed := ask(jobs...); failed != 0 || most != lookupsAtOnce {
			t.Errorf("20 jobs: %d failed, %d asked at the same time", failed, most)
		}
		if failed := ask("sick", "sick", "sick"); failed != 3 || asked["sick"] != 1 {
			t.Errorf("asked %d times, %d failed", asked["sick"], failed)
		}
		if _, ok := l.Recall(c("sick")); ok {
			t.Error("a failure is taken for an answer")
		}
		time.Sleep(lookupAgain - time.Second)
		if ask("sick"); asked["sick"] != 1 {
			t.Error("asked again at once")
		}
		time.Sleep(2 * time.Second)
		if ask("sick"); asked["sick"] != 2 {
			t.Errorf("asked %d times, want once more after a while", asked["sick"])
		}
		began := time.Now()
		if failed := ask("stuck", "stuck", "stuck"); failed != 3 || time.Since(began) != lookupTimeout {
			t.Errorf("%d failed after %v", failed, time.Since(began))
		}
		time.Sleep(lookupFresh + time.Second)
		if ask("1"); asked["1"] != 2 {
			t.Error("an old answer is not asked for again")
		}
	})
}
