package uplink_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/uplink"
)

// jobs are those of a host for tests.
type jobs struct {
	mu  sync.Mutex
	all []fleet.Job
}

func (j *jobs) Jobs() []fleet.Job {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.all
}

func (j *jobs) become(states ...string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = nil
	for n, state := range states {
		j.all = append(j.all, fleet.Job{ID: api.NewID(), Kind: api.UsageJob, State: state,
			Asked: time.Now().Add(-time.Duration(n) * time.Hour)})
	}
}

// listed are the states of all jobs that the server knows.
func (s *site) listed() string {
	s.t.Helper()
	page, err := s.Usage.Active(context.Background(), root, fleet.JobQuery{})
	if err != nil {
		s.t.Fatal(err)
	}
	var states []string
	for _, j := range page.Items {
		states = append(states, j.Host+" "+j.State)
	}
	return strings.Join(states, ", ")
}

// TestJobs: the server has the jobs that a host has, also when it was away meanwhile; one that is too old is not told.
func TestJobs(t *testing.T) {
	s := newSite(t)
	h, all := s.join("wn-1"), &jobs{}
	h.stop()
	link := func() {
		l, err := uplink.New(uplink.Options{Dir: h.dir, Host: h.Host, Jobs: all,
			Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var run sync.WaitGroup
		run.Go(func() { l.Run(ctx) })
		h.stop = sync.OnceFunc(func() { cancel(); run.Wait() })
		t.Cleanup(h.stop)
	}
	all.become("waiting", "running")
	link()
	s.eventually("two jobs", func() bool { return s.listed() == "wn-1 waiting, wn-1 running" })
	all.become("starting")
	s.eventually("another one", func() bool { return s.listed() == "wn-1 starting" })
	s.stop()
	all.become()
	s.start()
	s.eventually("none", func() bool { return s.listed() == "" })
	h.stop()
	s.stop()
	told := make(chan string, 100)
	o := &older{says: fleet.CapabilityJobs - 1, most: fleet.Capability}
	s.front = func(door http.Handler) http.Handler {
		o.next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case told <- r.URL.Path:
			default:
			}
			door.ServeHTTP(w, r)
		})
		return o
	}
	s.start()
	all.become("running")
	link()
	paths := map[string]bool{}
	for !paths[fleet.RouteWanted] {
		paths[<-told] = true
	}
	time.Sleep(10 * time.Millisecond) // the first report of jobs is beside the first poll
	for len(told) > 0 {
		paths[<-told] = true
	}
	if paths[fleet.RouteJobs] {
		t.Error("an older server is told of jobs")
	}
}
