// Package meter is what a server exports of its fleet and of itself. Labels are cells, states and classes of callers:
// never a host, a user or a VM, of which a fleet has thousands. docs/reference/metrics.md explains each name.
package meter

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/metrics"
)

const (
	counter   = metrics.Counter
	gauge     = metrics.Gauge
	histogram = metrics.Histogram
)

var (
	info = metrics.Metric{Name: "grange_server_info", Type: gauge, Labels: []string{"version"},
		Help: "1, with the server's release."}
	leads = metrics.Metric{Name: "grange_server_leads", Type: gauge,
		Help: "Whether this one of the servers runs the loops that decide. One of them does."}
	hosts = metrics.Metric{Name: "grange_server_hosts", Type: gauge, Labels: []string{"cell", "state"},
		Help: "Hosts by cell and state: open, closed, draining, silent, fenced."}
	vms = metrics.Metric{Name: "grange_server_vms", Type: gauge, Labels: []string{"cell", "state"},
		Help: "Cloud VMs by cell and state as their hosts reported last; waiting: no host has it yet; placed: its host " +
			"has not said anything of it."}
	images = metrics.Metric{Name: "grange_server_images", Type: gauge,
		Help: "Images in the catalogue of the fleet."}
	orphans = metrics.Metric{Name: "grange_server_orphans", Type: gauge,
		Help: "VMs on hosts that the server does not know."}
	outside = metrics.Metric{Name: "grange_server_usage_outside", Type: gauge, Labels: []string{"reason"},
		Help: "Records of usage that count for nobody, by the reason that `grange usage check` says."}
	warnings = metrics.Metric{Name: "grange_server_ca_warnings", Type: gauge,
		Help: "Warnings of `grange server status` about the fleet's CA, as certificates that end soon."}
	capacity = metrics.Metric{Name: "grange_server_cpus", Type: gauge, Labels: []string{"cell", "state"},
		Help: "Threads of hosts by cell: total, reserved by hosts for themselves, free, refused (free on hosts that " +
			"take nothing new). Of the server that leads."}
	capacityBytes = metrics.Metric{Name: "grange_server_memory_bytes", Type: gauge, Labels: []string{"cell", "state"},
		Help: "Memory of hosts for VMs by cell, huge pages included: total, free. Of the server that leads."}
	placed = metrics.Metric{Name: "grange_server_placed_total", Type: counter,
		Help: "Cloud VMs that this server has given a host."}
	passes = metrics.Metric{Name: "grange_server_placement_seconds", Type: histogram,
		Help: "How long the placer took for a group of VMs, from reading what changed to the commit."}
	queue = metrics.Metric{Name: "grange_server_store_queue", Type: gauge,
		Help: "Writes that wait for the database."}
	writes = metrics.Metric{Name: "grange_server_store_writes_total", Type: counter,
		Help: "Writes that were committed. Several are committed together."}
	commits = metrics.Metric{Name: "grange_server_store_commits_total", Type: counter,
		Help: "Commits of the database."}
	commitTime = metrics.Metric{Name: "grange_server_store_commit_seconds_total", Type: counter,
		Help: "Time that commits took: divided by their number, how long one takes."}
	revision = metrics.Metric{Name: "grange_server_store_revision", Type: gauge,
		Help: "The store's revision: it rises with each change."}
	polls = metrics.Metric{Name: "grange_server_polls", Type: gauge,
		Help: "Hosts that wait at this server for news."}
	requests = metrics.Metric{Name: "grange_server_requests_total", Type: counter, Labels: []string{"caller", "status"},
		Help: "Answers of the API by class of routes (people, hosts, anyone) and by class of their status (2xx, 4xx). " +
			"Polls of hosts that were told nothing new at once are not counted."}
	answers = metrics.Metric{Name: "grange_server_answer_seconds", Type: histogram, Labels: []string{"caller"},
		Help: "How long an answer took to begin, by class of routes."}
)

// Of is a number of something in a state, in a cell.
type Of struct{ Cell, State string }

// Figures are what the store and the mirror know.
type Figures struct {
	Revision                  int64
	Hosts, VMs                map[Of]int
	Images, Orphans, Warnings int
	Outside                   map[string]int // records of usage that count for nobody, by reason
	// of the server that leads; nil: another does
	CPUs   map[Of]int
	Memory map[Of]farm.Bytes
}

// Store is what the store has done so far, and what it is to do.
type Store struct {
	Waiting         int
	Writes, Commits int64
	Committing      time.Duration
}

// Sources are what the figures are read from. Functions may hang, and are asked once at a time.
type Sources struct {
	Version string
	Leads   func() bool
	Figures func() (Figures, error)
	Store   func() Store
}

// Meter counts what a server does. Its methods may be called from several goroutines, and on a nil Meter.
type Meter struct {
	*metrics.Set
	placed   prometheus.Counter
	passes   prometheus.Observer
	requests *prometheus.CounterVec
	answers  *prometheus.HistogramVec
}

// New returns a server's meter.
func New(from Sources) *Meter {
	s := metrics.NewSet()
	s.Source("server", func() (metrics.Reading, error) {
		leading := from.Leads()
		return func(put metrics.Put) {
			put(info, 1, from.Version)
			put(leads, is(leading))
		}, nil
	}, info, leads)
	s.Source("fleet", func() (metrics.Reading, error) {
		f, err := from.Figures()
		return f.put, err
	}, hosts, vms, images, orphans, outside, warnings, capacity, capacityBytes, revision)
	s.Source("store", func() (metrics.Reading, error) {
		st := from.Store()
		return st.put, nil
	}, queue, writes, commits, commitTime)
	fast := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	return &Meter{Set: s, placed: s.Counters(placed).WithLabelValues(), requests: s.Counters(requests),
		passes: s.Histograms(passes, fast...).WithLabelValues(), answers: s.Histograms(answers, fast...)}
}

// Polls has the number of hosts that wait exported. It is called before anybody scrapes.
func (m *Meter) Polls(waiting func() int) {
	if m == nil {
		return
	}
	m.Source("polls", func() (metrics.Reading, error) {
		n := waiting()
		return func(put metrics.Put) { put(polls, float64(n)) }, nil
	}, polls)
}

// Placed notes that VMs got a host; took: the time of the placer's pass, 0 where it was none.
func (m *Meter) Placed(n int, took time.Duration) {
	if m == nil {
		return
	}
	m.placed.Add(float64(n))
	if took > 0 {
		m.passes.Observe(took.Seconds())
	}
}

// Answered notes an answer to a caller of a class, and how long it took to begin.
func (m *Meter) Answered(caller string, status int, took time.Duration) {
	if m == nil {
		return
	}
	m.requests.WithLabelValues(caller, fmt.Sprintf("%dxx", status/100)).Inc()
	m.answers.WithLabelValues(caller).Observe(took.Seconds())
}

func is(v bool) float64 {
	if v {
		return 1
	}
	return 0
}

func (f Figures) put(put metrics.Put) {
	for of, n := range f.Hosts {
		put(hosts, float64(n), of.Cell, of.State)
	}
	for of, n := range f.VMs {
		put(vms, float64(n), of.Cell, of.State)
	}
	for of, n := range f.CPUs {
		put(capacity, float64(n), of.Cell, of.State)
	}
	for of, n := range f.Memory {
		put(capacityBytes, float64(n), of.Cell, of.State)
	}
	put(images, float64(f.Images))
	put(orphans, float64(f.Orphans))
	for reason, n := range f.Outside {
		put(outside, float64(n), reason)
	}
	put(warnings, float64(f.Warnings))
	put(revision, float64(f.Revision))
}

func (s Store) put(put metrics.Put) {
	put(queue, float64(s.Waiting))
	put(writes, float64(s.Writes))
	put(commits, float64(s.Commits))
	put(commitTime, s.Committing.Seconds())
}
