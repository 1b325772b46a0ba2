// Package history remembers what a fleet was like, for charts without a database of their own: each minute of some
// hours, each ten minutes of a week, each two hours of four months, and no more. It survives a restart in a file.
package history

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// CodeNoSeries is an error code; see docs/errors.md.
const CodeNoSeries farm.Code = "no-series"

// level is how long values of one step are kept. A series has some 2,800 values in all, of 4 bytes.
type level struct {
	step  time.Duration
	slots int
}

var levels = []level{{time.Minute, 6 * 60}, {10 * time.Minute, 7 * 24 * 6}, {2 * time.Hour, 120 * 12}}

// mostSeries bounds them, and so the file: a fleet of 40 cells has some 800.
const mostSeries = 1024

// saveEvery is how much of the history a crash may take.
const saveEvery = 5 * time.Minute

// History is that of one fleet. Its methods may be called from several goroutines.
type History struct {
	file string // "": it is in memory alone

	mu     sync.Mutex
	series map[string]*series
	saved  time.Time
}

// series is one figure over time.
type series struct {
	Rings []ring // one for each level
	Last  int64  // when it was added to, in seconds since 1970
}

// ring is the values of one level, by the number of their step since 1970.
type ring struct {
	Newest int64     // number of the newest step; 0: there is none
	Values []float32 // of step n at n % len; NaN: nothing is known
	Sum    float64   // of the newest step so far
	Count  int
}

// New returns a history that goes on with what is in a file. One that cannot be read is begun anew: it is no reason for
// a server not to start, and the error says so.
func New(file string) (*History, error) {
	h := &History{file: file, series: map[string]*series{}}
	if file == "" {
		return h, nil
	}
	all, err := load(file)
	if err == nil && all != nil {
		h.series = all
	}
	return h, err
}

// Add enters values of now. A new series beyond the bound takes the place of one that was not added to for longest, and
// not lately; where there is none it is left out.
func (h *History) Add(now time.Time, values map[string]float64) error {
	h.mu.Lock()
	for name, v := range values {
		if s := h.open(name, now); s != nil {
			s.add(now, v)
		}
	}
	due := h.file != "" && now.Sub(h.saved).Abs() >= saveEvery
	if due {
		h.saved = now
	}
	h.mu.Unlock()
	if !due {
		return nil
	}
	return h.Save()
}

// forgotten is how long a series is not replaced that nothing was added to.
const forgotten = time.Hour

func (h *History) open(name string, now time.Time) *series {
	if s := h.series[name]; s != nil {
		return s
	}
	if len(h.series) >= mostSeries {
		oldest, at := "", now.Add(-forgotten).Unix()
		for n, s := range h.series {
			if s.Last < at {
				oldest, at = n, s.Last
			}
		}
		if oldest == "" {
			return nil
		}
		delete(h.series, oldest)
	}
	s := &series{Rings: make([]ring, len(levels))}
	for i, l := range levels {
		s.Rings[i].Values = unknown(l.slots)
	}
	h.series[name] = s
	return s
}

func unknown(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(math.NaN())
	}
	return v
}

func (s *series) add(now time.Time, v float64) {
	s.Last = now.Unix()
	for i, l := range levels {
		s.Rings[i].add(now.UnixNano()/int64(l.step), v)
	}
}

// backSteps is how far a clock goes back as clocks do. Further, and it was wrong before.
const backSteps = 5

// add enters a value in a step. A step has the mean of its values. A clock that goes back a little adds to the newest
// one; one that was far ahead has left values of times that never were, which go.
func (r *ring) add(step int64, v float64) {
	size := int64(len(r.Values))
	if step < r.Newest-backSteps {
		copy(r.Values, unknown(len(r.Values)))
		r.Newest, r.Sum, r.Count = step, 0, 0
	}
	if step > r.Newest {
		for n := max(r.Newest+1, step-size+1); n < step; n++ {
			r.Values[n%size] = float32(math.NaN())
		}
		r.Newest, r.Sum, r.Count = step, 0, 0
	}
	r.Sum += v
	r.Count++
	r.Values[r.Newest%size] = float32(r.Sum / float64(r.Count))
}

// at is the value of a step.
func (r *ring) at(step int64) float32 {
	size := int64(len(r.Values))
	if step > r.Newest || step <= r.Newest-size || step < 0 {
		return float32(math.NaN())
	}
	return r.Values[step%size]
}

// Query asks for series from a time on.
type Query struct {
	Series []string // names, or beginnings with a * behind them; none: all names are told, and no values
	Since  time.Duration
}

// Answer is what is known of each: values at equal steps, the first one at From.
type Answer struct {
	Step   time.Duration
	From   time.Time
	Names  []string // of all series
	Series map[string][]float32
}

// mostAsked bounds an answer.
const mostAsked = 100

// Ask answers in the finest step that reaches back far enough.
func (h *History) Ask(now time.Time, q Query) (Answer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := 0
	for at < len(levels)-1 && q.Since > levels[at].step*time.Duration(levels[at].slots) {
		at++
	}
	l := levels[at]
	last := now.UnixNano() / int64(l.step)
	first := last - min(int64(q.Since/l.step), int64(l.slots)-1)
	a := Answer{Step: l.step, From: time.Unix(0, first*int64(l.step)).UTC(), Series: map[string][]float32{}}
	for name := range h.series {
		a.Names = append(a.Names, name)
	}
	slices.Sort(a.Names)
	for _, name := range a.Names {
		if !slices.ContainsFunc(q.Series, func(p string) bool { return matches(p, name) }) {
			continue
		}
		if len(a.Series) == mostAsked {
			return a, &farm.Error{Kind: farm.Invalid, Code: CodeNoSeries,
				Message: fmt.Sprintf("more than %d series are asked for", mostAsked), Hint: "name fewer of them"}
		}
		for step := first; step <= last; step++ {
			a.Series[name] = append(a.Series[name], h.series[name].Rings[at].at(step))
		}
	}
	if len(q.Series) > 0 && len(a.Series) == 0 {
		return a, &farm.Error{Kind: farm.NotFound, Code: CodeNoSeries,
			Message: "no series " + strings.Join(q.Series, ", "),
			Hint:    "`GET /v1/history` without a name lists them; a new server has none in its first minute"}
	}
	return a, nil
}

func matches(pattern, name string) bool {
	begin, open := strings.CutSuffix(pattern, "*")
	return open && strings.HasPrefix(name, begin) || pattern == name
}
