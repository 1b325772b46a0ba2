package bench

import (
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// TestScores: a core's part of what VMs of a size did together, on such hardware in such a state, and nothing guessed.
func TestScores(t *testing.T) {
	m := Measurement{Time: time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC),
		Host: HostState{Kind: "amd-epyc-7302-2s", Tuning: "0123456789ab"}, Results: []Result{
			{Size: Size{VMs: 4, CPUs: 8}, Workload: "db12", VM: 640,
				Ratio: Interval{Median: 0.97, Low: 0.96, High: 0.98}},
			{Size: Size{VMs: 4, CPUs: 8}, Workload: "integer", Unit: "MB/s", VM: 1},
			{Size: Size{VMs: 1, CPUs: 32}, Workload: "db12", VM: 608}}}
	got, err := Scores(m, "db12", "DB12", "wn-1")
	if err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	if s := got[0]; s.Core != 20 || s.CPUs != 8 || s.Hardware != "amd-epyc-7302-2s" || s.Tuning != "0123456789ab" ||
		s.Unit != "DB12" || s.Name != "amd-epyc-7302-2s-8-0123" || s.Source != "grange bench run db12 on wn-1, 2026-11-27, "+
		"4x8, median of 0 rounds, 0.970 of the host itself (95 %: 0.960 to 0.980)" {
		t.Errorf("%+v", s)
	}
	if s := got[1]; s.Core != 19 || s.CPUs != 32 || s.Name == got[0].Name {
		t.Errorf("%+v", s)
	}
	if _, err := Scores(m, "none", "", "wn-1"); !farm.IsCode(err, CodeBench) {
		t.Error(err)
	}
	if _, err := Scores(m, "db12", "", "wn-1"); err == nil {
		t.Error("a score without a unit")
	}
}
