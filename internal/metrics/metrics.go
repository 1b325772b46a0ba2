// Package metrics exports what a program knows of itself in Prometheus' text form. Figures that a program has anyway
// are read when somebody scrapes, each source by itself and within a bound: a disk or a daemon that hangs takes its own
// figures away, and no others. Nothing is kept twice, and there is no registry that the whole process shares.
package metrics

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// Type is what a metric's numbers are.
type Type string

// Types.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Metric is one name that is exported. docs/reference/metrics.md has a row for each.
type Metric struct {
	Name   string
	Type   Type
	Labels []string
	Help   string
}

// Of every source, whatever program it is of.
var (
	sourceUp = Metric{"grange_metrics_source_up", Gauge, []string{"source"},
		"Whether a source of figures answered this scrape in time. Figures of one that did not are its last ones, and " +
			"left out when these are older than five minutes."}
	sourceAge = Metric{"grange_metrics_source_age_seconds", Gauge, []string{"source"},
		"How old the figures of a source are."}
)

// Put takes one figure: its labels are those of the metric, in that order.
type Put func(m Metric, value float64, labels ...string)

// Reading puts the figures that were read. It may be called more than once.
type Reading func(Put)

// Set is all that one program exports.
type Set struct {
	registry *prometheus.Registry
	sources  []*source
	metrics  []Metric
	descs    map[string]*prometheus.Desc
	scrapes  chan struct{} // those that are answered now, by whatever handler
}

// NewSet returns a set with what Go and the kernel say of the process.
func NewSet() *Set {
	s := &Set{registry: prometheus.NewRegistry(), descs: map[string]*prometheus.Desc{},
		scrapes: make(chan struct{}, scrapesAtOnce)}
	s.describe(sourceUp, sourceAge)
	s.registry.MustRegister(sources{s}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return s
}

func (s *Set) describe(metrics ...Metric) {
	for _, m := range metrics {
		s.metrics = append(s.metrics, m)
		s.descs[m.Name] = prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)
	}
}

// Metrics are all of the set by name, but those of Go and of the process.
func (s *Set) Metrics() []Metric {
	return slices.SortedFunc(slices.Values(s.metrics), func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
}

// Source has figures read by read at each scrape, but not while it still reads, and not again within a second. Sources
// are added before anybody scrapes.
func (s *Set) Source(name string, read func() (Reading, error), of ...Metric) {
	s.describe(of...)
	s.sources = append(s.sources, &source{name: name, read: read})
}

// Counters returns counters that the program itself counts up. Labels have few values.
func (s *Set) Counters(m Metric) *prometheus.CounterVec {
	s.metrics = append(s.metrics, m)
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help}, m.Labels)
	s.registry.MustRegister(c)
	return c
}

// Histograms returns histograms of what the program itself observes. Labels have few values.
func (s *Set) Histograms(m Metric, buckets ...float64) *prometheus.HistogramVec {
	s.metrics = append(s.metrics, m)
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: buckets}, m.Labels)
	s.registry.MustRegister(h)
	return h
}

// Gather reads all that is exported now.
func (s *Set) Gather() ([]*dto.MetricFamily, error) { return s.registry.Gather() }

// scrapesAtOnce bounds what scrapers may have a program do.
const scrapesAtOnce = 3

// Handler answers scrapes with all metrics whose names do not begin with one of hidden.
func (s *Set) Handler(hidden ...string) http.Handler {
	shown := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		all, err := s.Gather()
		return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool {
			return slices.ContainsFunc(hidden, func(h string) bool { return strings.HasPrefix(f.GetName(), h) })
		}), err
	})
	h := promhttp.HandlerFor(shown, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.scrapes <- struct{}{}:
			defer func() { <-s.scrapes }()
			h.ServeHTTP(w, r)
		default:
			http.Error(w, fmt.Sprintf("%d scrapes are answered now: try again in a moment", scrapesAtOnce),
				http.StatusServiceUnavailable)
		}
	})
}

// sources collects what is read at scrapes.
type sources struct{ set *Set }

// Describe is for prometheus.Collector.
func (c sources) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.set.descs {
		ch <- d
	}
}

// Collect is for prometheus.Collector: it returns within a bound, whatever the sources do.
func (c sources) Collect(ch chan<- prometheus.Metric) {
	put := func(m Metric, value float64, labels ...string) {
		d := c.set.descs[m.Name]
		kind := prometheus.GaugeValue
		if m.Type == Counter {
			kind = prometheus.CounterValue
		}
		metric, err := prometheus.NewConstMetric(d, kind, value, labels...)
		if err != nil {
			metric = prometheus.NewInvalidMetric(d, err)
		}
		ch <- metric
	}
	var all sync.WaitGroup
	answers := make([]reading, len(c.set.sources))
	for i, s := range c.set.sources {
		all.Go(func() { answers[i] = s.get() })
	}
	all.Wait()
	for i, s := range c.set.sources {
		a := answers[i]
		up := 0.0
		if a.fresh {
			up = 1
		}
		put(sourceUp, up, s.name)
		if a.put == nil {
			continue
		}
		put(sourceAge, max(0, time.Since(a.at).Seconds()), s.name)
		a.put(put)
	}
}
