package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/filebench"
)

// figures is the line at the end.
type figures struct {
	Best        string             `json:"best"` // the gateway that auto chooses
	Why         string             `json:"why"`
	VsBindSeq   float64            `json:"best_vs_bind_seq"`     // times today's bind: write and read
	VsBindSmall float64            `json:"best_vs_bind_small"`   // create, stat and delete
	VsRaw       float64            `json:"best_vs_raw_virtiofs"` // all
	Results     []filebench.Median `json:"results"`
	Left        map[string]string  `json:"left_out,omitempty"`
	Kernel      string             `json:"kernel"`
	Accelerator string             `json:"accelerator"`
	FileSystem  string             `json:"file_system"`
	Time        time.Time          `json:"time"` // of the last round
}

func (f *figures) judge() {
	seq := func(phase string) bool { return filebench.Bytes(phase) }
	small := func(phase string) bool { return !filebench.Bytes(phase) }
	all := func(string) bool { return true }
	f.VsBindSeq, f.VsBindSmall = f.ratio(string(farm.FUSE), seq), f.ratio(string(farm.FUSE), small)
	f.VsRaw = f.ratio(rawVirtiofs, all)
}

// ratio is how many times as fast the best is as another one, as a geometric mean; 0 where one was not measured.
func (f *figures) ratio(other string, of func(phase string) bool) float64 {
	sum, n := 0., 0
	for _, a := range f.Results {
		for _, b := range f.Results {
			if a.Gateway == f.Best && b.Gateway == other && a.Phase == b.Phase && of(a.Phase) {
				sum, n = sum+math.Log(a.Rate/b.Rate), n+1
			}
		}
	}
	if n == 0 {
		return 0
	}
	return math.Round(100*math.Exp(sum/float64(n))) / 100
}

// measurement is what filebench shows.
func (f *figures) measurement() filebench.Measurement {
	safe := slices.DeleteFunc(slices.Clone(f.Results), func(m filebench.Median) bool {
		return !slices.Contains(farm.Automatic, farm.Gateway(m.Gateway))
	})
	return filebench.Measurement{Time: f.Time, Command: "make bench-files", Kernel: f.Kernel,
		Accelerator: f.Accelerator, FileSystem: f.FileSystem, Results: f.Results, Verdict: filebench.Recommend(safe)}
}

func (f *figures) table() string {
	var b strings.Builder
	b.WriteString(filebench.Table(f.measurement()))
	for _, name := range slices.Sorted(maps.Keys(f.Left)) {
		fmt.Fprintf(&b, "%s was not measured: %s\n", name, f.Left[name])
	}
	fmt.Fprintf(&b, "auto chooses %s: %s\n", f.Best, f.Why)
	return b.String()
}

func (f *figures) picture() string {
	return filebench.Picture([]filebench.Measurement{f.measurement()})
}
