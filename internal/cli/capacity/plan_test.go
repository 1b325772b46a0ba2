package capacity

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/cli/app"
)

const (
	epyc  = "../../topology/testdata/AMD-17h-Zen-2xEpyc-7451.derived.tar.bz2"
	sacct = "../../capacity/demand/testdata/sacct.txt"
)

func run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app.App{Out: &out, Err: &errs}
	root := a.Tree(app.Group{Title: "Fleet", Commands: Commands(a)})
	root.SetArgs(append([]string{"capacity", "plan"}, args...))
	err = root.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

func planned(t *testing.T, args ...string) (p plan) {
	t.Helper()
	out, _, err := run(t, append(args, "--json")...)
	if err == nil {
		err = json.Unmarshal([]byte(out), &p)
	}
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return p
}

// TestPlan: jobs of a record on a recorded host, as it is and without SMT.
func TestPlan(t *testing.T) {
	p := planned(t, "--host", "2x"+epyc, "--jobs", sacct, "--no-smt", "--loss", "1=0,8=10")
	hours := float64(int64(p.Now.Installed*1e6)) / 1e6
	if p.Jobs != 4 || p.Now.Ended != 4 || p.Then == nil || p.Then.Ended != 4 || !p.Loss ||
		p.Now.Installed != 2*p.Then.Installed || hours < 2*96*25 || p.Now.Overhead == 0 {
		t.Errorf("%+v", p)
	}
	out, _, err := run(t, "--host", "2x2s4c2t16G", "--jobs", sacct)
	if err != nil || !strings.HasPrefix(out, "4 jobs in 1.0 days\n") || strings.Contains(out, "SO CHANGED") ||
		!strings.Contains(out, "grange bench run") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestWhatIf: each change does something.
func TestWhatIf(t *testing.T) {
	base := []string{"--host", "4x2s8c2t64G", "--mix", "8x16G@6h=1,1x2G@3h=1", "--days", "5"}
	as := func(more ...string) plan {
		t.Helper()
		return planned(t, append(append([]string{}, base...), more...)...)
	}
	if p := as("--vm-cpus", "8", "--node-limit", "10"); p.Then.Nodes != 16 || p.Now.Nodes != 4 {
		t.Errorf("%d and %d nodes", p.Now.Nodes, p.Then.Nodes)
	}
	if p := as("--add", "2x1s8c1t32G"); p.Then.Installed != p.Now.Installed*(128+16)/128 {
		t.Errorf("%g and %g installed", p.Now.Installed, p.Then.Installed)
	}
	if p := as("--memory-per-cpu", "7G"); p.Then.Memory == 0 || p.Then.Delivered >= p.Now.Delivered {
		t.Errorf("%+v", p.Then)
	}
	if p := as("--page-size", "1G"); p.Then.Ended == 0 || p.Then.Impossible != 0 {
		t.Errorf("%+v", p.Then)
	}
	if p := as("--thread-policy", "isolate"); p.Then.Beside == 0 || p.Now.Beside != 0 {
		t.Errorf("%+v", p.Then)
	}
	if p := as("--numa", "2"); p.Then.Impossible == 0 { // of one CPU
		t.Errorf("%+v", p.Then)
	}
	if p := as("--load", "0.5", "--drained", "0.2", "--broken", "0.1"); p.Now.Drained == 0 || p.Now.Broken == 0 {
		t.Errorf("%+v", p.Now)
	}
}

func TestPlanNonsense(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	hosts := []string{"--host", "2x2s8c2t64G"}
	for _, args := range [][]string{
		{}, {"--mix", "8x16G@6h"}, hosts, {"--host", "2x2s8c2t64G", "--mix", "8x16G@6h", "--jobs", sacct},
		{"--host", "x2s8c2t64G", "--mix", "8x16G@6h"}, {"--host", "0x2s8c2t64G", "--mix", "8x16G@6h"},
		{"--host", "2xnowhere.tar", "--mix", "8x16G@6h"}, append(hosts, "--mix", "8"), append(hosts, "--jobs", empty),
		append(hosts, "--jobs", "nowhere"), append(hosts, "--mix", "8x16G@6h", "--loss", "x"),
		append(hosts, "--mix", "8x16G@6h", "--vm-cpus", "33"), append(hosts, "--mix", "8x16G@6h", "--page-size", "3M"),
		append(hosts, "--mix", "8x16G@6h", "--thread-policy", "no"), append(hosts, "--mix", "8x16G@6h", "--numa", "0"),
		append(hosts, "--mix", "8x16G@6h", "--reserve", "64"), append(hosts, "--mix", "8x16G@6h", "--days", "-1"),
		append(hosts, "--mix", "8x16G@6h", "--days", "NaN"), append(hosts, "--mix", "8x16G@6h", "--broken", "NaN"),
		append(hosts, "--mix", "8x16G@6h", "--drained", "0.95"), append(hosts, "--mix", "8x16G@6h", "--load", "1e9"),
		append(hosts, "--mix", "8x16G@6h", "--memory-per-cpu", "1"),
	} {
		if out, _, err := run(t, args...); err == nil {
			t.Errorf("%v: no error\n%s", args, out)
		}
	}
}
