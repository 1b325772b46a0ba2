package history

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

var start = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

func ask(t *testing.T, h *History, now time.Time, since time.Duration, names ...string) Answer {
	t.Helper()
	a, err := h.Ask(now, Query{names, since})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestSteps: the last hours are there by the minute, a week by ten minutes, months by two hours, each as the mean.
func TestSteps(t *testing.T) {
	h, _ := New("")
	now := start
	for minute := range 8 * 24 * 60 { // rises by one each minute
		now = start.Add(time.Duration(minute) * time.Minute)
		if err := h.Add(now, map[string]float64{"vms.running": float64(minute)}); err != nil {
			t.Fatal(err)
		}
	}
	last := 8*24*60 - 1
	for since, want := range map[time.Duration]struct {
		step   time.Duration
		values int
		before float32 // the last but one, which is complete
	}{
		time.Hour:           {time.Minute, 61, float32(last - 1)},
		6 * time.Hour:       {time.Minute, 360, float32(last - 1)},
		24 * time.Hour:      {10 * time.Minute, 145, float32(last-10) - 4.5},
		30 * 24 * time.Hour: {2 * time.Hour, 361, float32(last-120) - 59.5},
	} {
		a := ask(t, h, now, since, "vms.*")
		values := a.Series["vms.running"]
		if a.Step != want.step || len(values) != want.values || values[len(values)-2] != want.before {
			t.Errorf("%v: step %v, %d values, %v", since, a.Step, len(values), values[max(0, len(values)-3):])
		}
		if at := a.From.Add(time.Duration(len(values)-1) * a.Step); now.Sub(at) >= a.Step || at.After(now) {
			t.Errorf("%v: the last value is of %v", since, at)
		}
	}
	if a := ask(t, h, now, 30*24*time.Hour, "vms.running"); !math.IsNaN(float64(a.Series["vms.running"][0])) {
		t.Error("there are values of before the first one")
	}
}

// TestGaps: of a time in which nothing was added nothing is known, and old values do not come back in their places.
func TestGaps(t *testing.T) {
	h, _ := New("")
	h.Add(start, map[string]float64{"a": 1})
	later := start.Add(6*time.Hour + 3*time.Minute)
	h.Add(later, map[string]float64{"a": 2})
	values := ask(t, h, later, 6*time.Hour, "a").Series["a"]
	for i, v := range values {
		if known := !math.IsNaN(float64(v)); known != (i == len(values)-1) {
			t.Errorf("value %d of %d is %v", i, len(values), v)
		}
	}
	h.Add(later.Add(-time.Minute), map[string]float64{"a": 4}) // a clock that was put back a little
	if got := ask(t, h, later, time.Minute, "a").Series["a"]; got[len(got)-1] != 3 {
		t.Error(got)
	}
}

// TestBounds: series that are not added to make room for others, those that are do not.
func TestBounds(t *testing.T) {
	h, _ := New("")
	for i := range mostSeries + 10 {
		h.Add(start, map[string]float64{fmt.Sprint("old", i): 1})
	}
	if len(h.series) != mostSeries {
		t.Fatal(len(h.series))
	}
	h.Add(start.Add(2*time.Hour), map[string]float64{"new": 1})
	if len(h.series) != mostSeries || h.series["new"] == nil {
		t.Error(len(h.series))
	}
	for _, names := range [][]string{{"old*"}, {"nothing"}} {
		if _, err := h.Ask(start, Query{names, time.Hour}); !farm.IsCode(err, CodeNoSeries) {
			t.Errorf("%v: %v", names, err)
		}
	}
	if a := ask(t, h, start, time.Hour); len(a.Names) != mostSeries || len(a.Series) != 0 {
		t.Error(len(a.Names), len(a.Series))
	}
}

// TestRestart: a history goes on after a restart; what is not one is said, and begun anew.
func TestRestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history")
	h, err := New(file)
	if err != nil {
		t.Fatal(err)
	}
	full := map[string]float64{}
	for i := range mostSeries {
		full[fmt.Sprint("s", i)] = float64(i)
	}
	if err := h.Add(start, full); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Size() > 4<<20 {
		t.Fatal(info.Size(), err)
	}
	again, err := New(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, again, start, time.Minute, "s7").Series["s7"]; got[len(got)-1] != 7 {
		t.Error(got)
	}
	text, _ := os.ReadFile(file)
	for name, broken := range map[string][]byte{"cut": text[:len(text)/2], "text": []byte("hello")} {
		os.WriteFile(file, broken, 0o600)
		h, err := New(file)
		if err == nil || len(h.series) != 0 {
			t.Errorf("%s: %v, %d series", name, err, len(h.series))
		}
		if err := h.Add(start, map[string]float64{"a": 1}); err != nil {
			t.Error(err)
		}
	}
}

// TestClockComesBack: values of a clock that was far ahead go when it is right again.
func TestClockComesBack(t *testing.T) {
	r := ring{Values: unknown(10)}
	r.add(1000, 1)
	r.add(9000, 2)
	r.add(1001, 3)
	r.add(1002, 4)
	if a, b, c := r.at(1001), r.at(1002), r.at(9000); a != 3 || b != 4 || !math.IsNaN(float64(c)) {
		t.Error(a, b, c)
	}
	r.add(1001, 6) // a little back: as before
	if b := r.at(1002); b != 5 {
		t.Error(b)
	}
}
