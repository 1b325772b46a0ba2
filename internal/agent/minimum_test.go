package agent

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

func TestShort(t *testing.T) {
	for name, c := range map[string]struct {
		amount
		want string
	}{
		"enough":          {amount{"x", 2 * farm.GiB, true, farm.GiB}, ""},
		"just enough":     {amount{"x", farm.GiB, true, farm.GiB}, ""},
		"short":           {amount{"x", farm.GiB - 1, true, farm.GiB}, "x is short: 1023M free, the minimum is 1G"},
		"unknown":         {amount{"x", 0, false, farm.GiB}, ""},
		"does not matter": {amount{"x", 0, true, 0}, ""},
	} {
		if got := strings.Join(shortOf([]amount{c.amount}), ""); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	for text, want := range map[string]farm.Bytes{"MemTotal: 5 kB\nMemAvailable:    2048 kB\n": 2 * farm.MiB,
		"MemTotal: 5 kB\n": 0, "": 0} {
		got, known := availableMemory(fstest.MapFS{"proc/meminfo": {Data: []byte(text)}})
		if got != want || known != (want != 0) {
			t.Errorf("%q: %v %v", text, got, known)
		}
	}
}

// TestMinimumRefuses asks a host for more than any has.
func TestMinimumRefuses(t *testing.T) {
	a := claimAgent(t.TempDir())
	v := &vm{agent: a, request: &api.JobRequest{},
		record: record{Caller: Caller{Batch: farm.Allotment{System: farm.Slurm, Job: "1"}}}}
	if err := v.awaitMinimum(); err != nil {
		t.Errorf("without a minimum: %v", err)
	}
	a.cfg.Minimum.Disk, a.cfg.Minimum.Memory = 1<<62, 1<<62
	err := v.awaitMinimum()
	e := new(farm.Error)
	if !errors.As(err, &e) || e.Kind != farm.NoCapacity || e.Code != CodeBelowMinimum ||
		!strings.Contains(e.Message, "disk space in "+a.cfg.StateDir) ||
		!strings.Contains(e.Message, "; memory is short") {
		t.Errorf("%v", err)
	}
}
