package main

import (
	"testing"

	"github.com/grange-project/grange/internal/filebench"
	"github.com/grange-project/grange/internal/filebench/load"
)

func TestJudge(t *testing.T) {
	f := figures{Best: "virtiofs"}
	for gateway, rates := range map[string][]float64{"virtiofs": {80, 20, 30, 30, 30}, "fuse": {10, 10, 30, 10, 10},
		rawVirtiofs: {160, 40, 60, 60, 60}} {
		for i, phase := range load.Phases {
			f.Results = append(f.Results, filebench.Median{Result: filebench.Result{Gateway: gateway, Phase: phase,
				Rate: rates[i]}, Rounds: 1, Spread: 1})
		}
	}
	f.judge()
	if f.VsBindSeq != 4 || f.VsBindSmall != 2.08 || f.VsRaw != 0.5 {
		t.Errorf("%+v", f)
	}
	f.Best = "nfs"
	if f.judge(); f.VsBindSeq != 0 || f.VsRaw != 0 {
		t.Errorf("of what was not measured: %+v", f)
	}
}
