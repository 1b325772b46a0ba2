package bench

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/bench"
	"github.com/grange-project/grange/internal/cli/app"
)

// lab is a host's configuration and state.
type lab struct {
	t      *testing.T
	state  string
	config string
}

func newLab(t *testing.T) lab {
	t.Helper()
	l := lab{t, t.TempDir(), filepath.Join(t.TempDir(), "agent.toml")}
	if err := os.WriteFile(l.config, []byte("state_dir = \""+l.state+"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l lab) run(args ...string) (string, error) {
	l.t.Helper()
	var out bytes.Buffer
	a := &app.App{Out: &out, Err: &out}
	root := a.Tree(app.Group{Title: "Hosts", Commands: Commands(a)})
	root.SetArgs(append(args, "--config", l.config))
	err := root.ExecuteContext(l.t.Context())
	return out.String(), err
}

// measured is what `grange bench run` keeps.
func (l lab) measured(at time.Time, speed float64) {
	l.t.Helper()
	var rounds []bench.Round
	for i := range 10 {
		r := speed + float64(i)/10
		rounds = append(rounds, bench.Round{Host: [2]float64{r, r}, VM: [2]float64{r, r}})
	}
	k, err := bench.ReadKept(l.state)
	if err != nil {
		l.t.Fatal(err)
	}
	k.Add(bench.Measurement{Time: at, Command: "grange bench run integer", Host: bench.HostState{CPU: "E5", CPUs: 8},
		Results: []bench.Result{{Size: bench.Size{VMs: 1, CPUs: 8}, Workload: "integer", VM: speed, Rounds: rounds,
			Ratio: bench.Interval{Median: 1, Low: 1, High: 1}}}})
	a := &app.App{Err: os.Stderr}
	a.KeepResults(bench.KeptFile(l.state), k)
}

// TestGate: before an upgrade a baseline, behind it a verdict by the exit status.
func TestGate(t *testing.T) {
	l, now := newLab(t), time.Now()
	for _, step := range []struct {
		before func()
		args   string
		said   string
		status int
	}{
		{func() {}, "gate", "nothing was measured", 1},
		{func() { l.measured(now, 100) }, "gate", "no baseline", 1},
		{func() {}, "gate --save", "is the baseline now", 0},
		{func() {}, "gate", "since the baseline", 1},
		{func() { l.measured(now.Add(time.Hour), 100) }, "gate", "integer", 0},
		{func() { l.measured(now.Add(2*time.Hour), 93) }, "gate", "LOST", app.ExitLost},
		{func() {}, "gate --least 10", "-7.0 %", 0},
		{func() {}, "gate --least -1", "no part", 1},
		{func() {}, "gate --baseline nowhere", "no baseline", 1},
	} {
		step.before()
		out, err := l.run(append([]string{"bench"}, strings.Fields(step.args)...)...)
		status := 0
		var exit app.ExitError
		switch {
		case errors.As(err, &exit):
			status = exit.Status
		case err != nil:
			status, out = 1, out+err.Error()
		}
		if status != step.status || !strings.Contains(out, step.said) {
			t.Errorf("%s: status %d, %s", step.args, status, out)
		}
	}
}

// TestTrialRefuses: what cannot be tried is refused before anything changes.
func TestTrialRefuses(t *testing.T) {
	l := newLab(t)
	for _, c := range []struct{ args, said string }{
		{"", "no change was tried"}, {"no-such-rule", "no-such-rule"},
		{"/proc/sys/vm/swappiness=10 --on moon", "moon"},
	} {
		out, err := l.run(append([]string{"trial"}, strings.Fields(c.args)...)...)
		if err == nil || !strings.Contains(out+err.Error(), c.said) {
			t.Errorf("%s: %v\n%s", c.args, err, out)
		}
	}
}
