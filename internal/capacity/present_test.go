package capacity

import (
	"math"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
)

var noon = time.Date(2026, 11, 10, 12, 0, 0, 0, time.UTC)

func used(kind string, cores int, from, to time.Duration, score float64) api.Usage {
	return api.Usage{Kind: kind, Cell: "east", Project: "atlas", Cores: cores, Start: noon.Add(from), End: noon.Add(to),
		Score: score, ScoreUnit: "HS23"}
}

// TestPresent: each CPU hour that was seen is in one part, and what was not seen is in none, of both sides.
func TestPresent(t *testing.T) {
	unknown := math.NaN()
	east := Seen{Cell: "east", From: noon.Add(-time.Hour), Step: time.Hour,
		Total: []float64{64, 64, unknown, 64}, Reserved: []float64{4, 4, unknown, 4},
		Refused: []float64{0, 16, unknown, 0}, Free: []float64{60, 20, unknown, 30}}
	p := NewPresent(noon, noon.Add(150*time.Minute), []Seen{east}, map[string]int{"atlas": 40, "cms": 5})
	p.Add(used(api.UsageJob, 8, -time.Hour, time.Hour, 10))                // an hour of it
	p.Add(used(api.UsageVM, 4, time.Hour, 2*time.Hour, 0))                 // in the hour that was not seen
	p.Add(used(api.UsageMetal, 2, 2*time.Hour, 9*time.Hour, 0))            // half an hour of it
	p.Add(used(api.UsageWorker, 16, 30*time.Minute, 90*time.Minute, 12.5)) // half an hour of it
	other := used(api.UsageJob, 8, 0, time.Hour, 0)
	other.Cell = "west" // was never seen
	p.Add(other)
	cells, pledges := p.Result()
	want := Cell{Cell: "east", Hours: 1.5, Installed: 96, Reserved: 6, Refused: 16, Delivered: Delivered{16, 0, 1},
		Held: 96 - 6 - 16 - 35 - 16, Unused: 34}
	if len(cells) != 1 || len(cells[0].Scores) != 1 || cells[0].Scores[0] != (Score{"HS23", 16, 180}) {
		t.Fatalf("%+v", cells)
	}
	got := cells[0]
	if got.Scores = nil; got.Hours != want.Hours || got.Delivered != want.Delivered || got.Held != want.Held ||
		got.Refused != want.Refused || got.Unused != want.Unused {
		t.Errorf("%+v, not %+v", got, want)
	}
	if sum := got.Reserved + got.Refused + got.Delivered.Sum() + got.Held + got.Unused; sum != got.Installed {
		t.Errorf("the parts are %g, and installed is %g", sum, got.Installed)
	}
	if len(pledges) != 2 || pledges[0] != (Pledge{"atlas", 40, 100, 60, Delivered{16, 0, 1}}) ||
		pledges[1] != (Pledge{"cms", 5, 12.5, 7.5, Delivered{}}) {
		t.Errorf("%+v", pledges)
	}
}
