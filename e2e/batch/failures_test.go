package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/grange-project/grange/e2e/batch/conform"
)

func TestBlamed(t *testing.T) {
	var long []string
	for i := range 100 {
		long = append(long, fmt.Sprintf("line %d", i))
	}
	for name, c := range map[string]struct {
		lines []string
		first string
		last  string
		count int
	}{
		"a program": {long, "line 99", "line 98", retoldLines},
		"a test": {append(append([]string{"starting"}, "--- FAIL: TestSlurm (3.00s)",
			"    slurm_test.go:7: never", "FAIL"), long...), "--- FAIL: TestSlurm (3.00s)",
			"    slurm_test.go:7: never", 2},
		"a subtest": {[]string{"--- FAIL: TestX (0.00s)", "    --- FAIL: TestX/y (0.00s)",
			"        x_test.go:1: no", "--- PASS: TestZ (0.00s)", "    fine"}, "--- FAIL: TestX (0.00s)",
			"        x_test.go:1: no", 3},
		"verbose": {append([]string{"=== RUN   TestX", "=== RUN   TestX/y", "    x_test.go:9: left behind: a VM",
			"--- FAIL: TestX (0.00s)", "    --- PASS: TestX/y (0.00s)", "FAIL"}, long...),
			"    x_test.go:9: left behind: a VM", "--- FAIL: TestX (0.00s)", 2},
		"a long one": {append([]string{"--- FAIL: TestSlurm (3.00s)"}, long...), "--- FAIL: TestSlurm (3.00s)",
			"line 23", retoldLines},
		"a panic": {append(append([]string{}, long...), "panic: nil map", "goroutine 1"), "panic: nil map",
			"goroutine 1", 2},
		"said nothing":  {nil, "", "", 1},
		"ended at once": {[]string{"elastic: no munged"}, "elastic: no munged", "elastic: no munged", 1},
	} {
		got := strings.Split(blamed(c.lines), "\n")
		if got[0] != c.first || got[len(got)-1] != c.last || len(got) != c.count {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestRetold(t *testing.T) {
	p := &passage{system: system{name: "slurm"}}
	p.tell(conform.Outcome{Case: "exit-code", Verdict: conform.Pass})
	p.tell(conform.Outcome{Case: "signal", Verdict: conform.Fail, Err: errors.New("no TERM\nwas seen")})
	p.fail("", &programFailed{errors.New("elastic: exit status 1"), "left behind: a VM"})
	want := "FAIL  slurm  signal\n        no TERM\n        was seen\nFAIL  slurm\n        elastic: exit status 1\n   " +
		"     left behind: a VM\n"
	if got := p.retold(); got != want || p.Failed != 2 || p.Passed != 1 {
		t.Errorf("%d failed, %d passed, told again:\n%s", p.Failed, p.Passed, got)
	}
}
