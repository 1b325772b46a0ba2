package vm

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/internal/bench"
)

// TestBench fills the host with two small VMs, and compares them with it. What comes out is another matter.
func TestBench(t *testing.T) {
	table := filepath.Join(t.TempDir(), "bench.csv")
	run := func(args ...string) result {
		t.Helper()
		return runGrange(t, append([]string{"bench", "run", "--config", host.Config, "--memory", "256M", "--each", "20ms",
			"--rounds", "6"}, args...)...)
	}
	r := run("integer", "pages", "--program", "own=echo 42", "--size", "2x1", "-o", table, "--json")
	r.wantCode(t, 0)
	var all []bench.Measurement
	if err := json.Unmarshal([]byte(r.out), &all); err != nil || len(all) != 1 || len(all[0].Results) != 3 {
		t.Fatalf("%v: %s", err, r.out)
	}
	for _, one := range all[0].Results {
		if len(one.Rounds) != 6 || one.Host <= 0 || one.VM <= 0 || one.Ratio.Low > one.Ratio.High || one.Why == "" {
			t.Errorf("%+v", one)
		}
	}
	if own := all[0].Results[2]; own.Host != 2*42 || own.Shown() != "no difference shown" || own.Why != "narrow enough" {
		t.Errorf("two members of 42 each: %+v", own)
	}
	if m := all[0].Host; m.Kernel == "" || m.CPU == "" || m.Emulated != (lab.Accelerator() == "tcg") {
		t.Errorf("%+v", m)
	}
	text, err := os.ReadFile(table)
	if err != nil || strings.Count(string(text), "\n") != 4 {
		t.Errorf("%v: %s", err, text)
	}
	show := runGrange(t, "bench", "show", "--config", host.Config)
	if show.wantCode(t, 0); !strings.Contains(show.out, "VMS/HOST") || !strings.Contains(show.out, "2x1") {
		t.Error(show.out)
	}
	scores := runGrange(t, "bench", "scores", "own", "--unit", "OWN", "--config", host.Config)
	for _, want := range []string{"[scores.", "cpus = 1\n", "core = 42", "tuning = ", "grange bench run own on "} {
		if scores.wantCode(t, 0); !strings.Contains(scores.out, want) {
			t.Errorf("no %q in the scores:\n%s", want, scores.out)
		}
	}
	for _, args := range [][]string{{"--size", "99x1"}, {"--size", "1x1", "--program", "bad=exit 3"}} {
		if r := run(append([]string{"integer"}, args...)...); r.code == 0 || !strings.Contains(r.errors, "bench") {
			t.Errorf("%v: %d %s %s", args, r.code, r.out, r.errors)
		}
	}
	await(t, host, "no VM left", noVMs)
}

func runGrange(t *testing.T, args ...string) result {
	t.Helper()
	return run(t, host.Grange(ctx(t), args...), "")
}

// TestBenchVMGone: a VM that ends while it is measured is no hang and no riddle.
func TestBenchVMGone(t *testing.T) {
	cmd, said := host.Grange(ctx(t), "bench", "run", "integer", "--program", "own=echo 42", "--config", host.Config,
		"--size", "1x1", "--memory", "256M", "--each", "1s", "--budget", "5m"), newLineReader()
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait(); said.end() }()
	if !said.await("1x1: own, round 1: 1.000 of the host") {
		t.Fatal(said.text())
	}
	vms, err := host.Client.VMs(ctx(t))
	if err != nil || len(vms) != 1 {
		t.Fatal(vms, err)
	}
	runGrange(t, "vm", "stop", vms[0].Name).wantCode(t, 0)
	if err := <-ended; err == nil || !strings.Contains(said.text(), "a VM has gone: ") {
		t.Errorf("%v: %s", err, said.text())
	}
	await(t, host, "no VM left", noVMs)
}
