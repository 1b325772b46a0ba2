package diskbench

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

const answer = `fio: a warning that fio prints before
{"fio version":"fio-3.33","jobs":[{"jobname":"grange","error":%d,
"read":{"io_bytes":%d,"bw_bytes":2097152,"iops":512.5,"clat_ns":{"percentile":{"99.000000":2500000}}},
"write":{"io_bytes":0,"bw_bytes":0,"iops":0,"clat_ns":{}}}]}`

func TestParse(t *testing.T) {
	read := Pattern{"random read", 4 * farm.KiB}
	r, err := parse([]byte(fmt.Sprintf(answer, 0, 4096)), read)
	want := Result{Pattern: "random read", Block: 4096, Rate: 2097152, IOPS: 512.5, Late: 2.5}
	if err != nil || r != want {
		t.Errorf("%+v, %v", r, err)
	}
	for name, c := range map[string]struct {
		text string
		p    Pattern
	}{
		"an error": {fmt.Sprintf(answer, 28, 4096), read}, "nothing": {fmt.Sprintf(answer, 0, 0), read},
		"no JSON": {"fio: engine libaio not loadable", read}, "no write": {fmt.Sprintf(answer, 0, 4096),
			Pattern{"random write", 4096}},
	} {
		if _, err := parse([]byte(c.text), c.p); !farm.IsCode(err, CodeBench) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRun: each choice is measured by each pattern, cold but for a re-read; nothing is left, whatever fails.
func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench")
	var lines []string
	both := strings.Replace(answer, `"io_bytes":0,"bw_bytes":0`, `"io_bytes":1,"bw_bytes":7`, 1)
	o := Options{Size: farm.MiB, Time: time.Second, Rounds: 2, Tell: func(int, int, string) {},
		runTool: func(_ context.Context, args ...string) ([]byte, error) {
			lines = append(lines, strings.Join(args, " "))
			return []byte(fmt.Sprintf(both, 0, 1)), os.WriteFile(file, nil, 0o600)
		}}
	choices := []Choice{{Name: "a", Path: file, Engine: "psync"},
		{Name: "b", Path: file, Engine: "libaio", Direct: true}}
	all, err := Run(t.Context(), choices, o)
	if err != nil || len(all) != 2*2*12 {
		t.Fatalf("%d results, %v", len(all), err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the file is left")
	}
	count := func(words ...string) (n int) {
		for _, line := range lines {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
				n++
			}
		}
		return n
	}
	for words, want := range map[string]int{"--invalidate=0 ": 0, "--invalidate=0": 8, "--direct=1": 24,
		"--rw=randwrite --bs=4096": 4, "--rw=write --bs=1M": 8, "--runtime=1000ms": 48} {
		if got := count(words); got != want {
			t.Errorf("%d lines with %q, want %d", got, words, want)
		}
	}
	fails := o
	fails.runTool = func(context.Context, ...string) ([]byte, error) {
		return nil, failed("no", os.WriteFile(file, nil, 0o600))
	}
	if _, err := Run(t.Context(), choices, fails); !farm.IsCode(err, CodeBench) {
		t.Error(err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the file is left after a failure")
	}
}

func TestRecommend(t *testing.T) {
	round := func(choice string, rates ...float64) (all []Result) {
		for i, rate := range rates {
			all = append(all, Result{Choice: choice, Pattern: fmt.Sprint(i), Rate: rate})
		}
		return all
	}
	for name, c := range map[string]struct {
		all    []Result
		best   string
		margin float64
		sure   bool
	}{
		"one is faster": {slices.Concat(round("a", 100, 100), round("b", 400, 100)), "b", 2, false},
		"one each":      {slices.Concat(round("a", 1000, 10), round("b", 100, 100)), "a", 1, false},
		"less than the noise": {slices.Concat(round("a", 100), round("a", 150), round("b", 120), round("b", 180)), "b", 1.2,
			false},
		"more than the noise": {slices.Concat(round("a", 100), round("a", 110), round("b", 200), round("b", 220)), "b", 2,
			true},
		"there is one":         {round("a", 5), "a", 1, false},
		"nothing was measured": {nil, "", 0, false},
	} {
		v := Recommend(Medians(c.all))
		if v.Choice != c.best || math.Abs(v.Margin-c.margin) > 1e-9 || v.Sure != c.sure {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// A re-read of a choice that uses the page cache says nothing of the disk.
func TestReReadsDoNotCount(t *testing.T) {
	v := Recommend(Medians([]Result{
		{Choice: "cached", Pattern: "read", Rate: 100}, {Choice: "cached", Pattern: "re-read", Rate: 9000},
		{Choice: "direct", Pattern: "read", Rate: 200}, {Choice: "direct", Pattern: "re-read", Rate: 200},
	}))
	if v.Choice != "direct" || math.Abs(v.Margin-2) > 1e-9 || !strings.Contains(v.String(), "over all patterns but the re-read") {
		t.Errorf("%+v: %v", v, v)
	}
}

// TestFio runs fio itself, where it is installed, for a moment.
func TestFio(t *testing.T) {
	if _, err := os.Stat(tool); err != nil {
		t.Skip("fio is not installed")
	}
	c := Choice{Name: "file", Path: filepath.Join(t.TempDir(), "bench"), Engine: "psync"}
	all, err := Run(t.Context(), []Choice{c}, Options{Size: farm.MiB, Time: 100 * time.Millisecond, Rounds: 1,
		Tell: func(int, int, string) {}})
	if err != nil || len(all) != 12 {
		t.Fatalf("%d results, %v", len(all), err)
	}
	for _, r := range all {
		if r.Rate <= 0 || r.IOPS <= 0 {
			t.Errorf("%+v", r)
		}
	}
}
