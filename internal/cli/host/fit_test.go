package host

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/cli/app"
)

// epyc is a recorded host of 2 sockets × 4 nodes × 6 cores × 2 threads.
const epyc = "../../topology/testdata/AMD-17h-Zen-2xEpyc-7451.derived.tar.bz2"

// fit runs `grange host fit`.
func fit(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	a := &app.App{Out: &stdout, Err: &stderr}
	root := a.Tree(app.Group{Title: "Hosts", Commands: Commands(a)})
	root.SetArgs(append([]string{"host", "fit"}, args...))
	err = root.ExecuteContext(t.Context())
	return stdout.String(), err
}

func fitJSON(t *testing.T, args ...string) (fitReport, error) {
	t.Helper()
	out, err := fit(t, append(args, "--json", "--from", epyc)...)
	var r fitReport
	if jsonErr := json.Unmarshal([]byte(out), &r); jsonErr != nil {
		t.Fatalf("%v: %v, %v\n%s", args, err, jsonErr, out)
	}
	return r, err
}

func TestHostFit(t *testing.T) {
	r, err := fitJSON(t, "--cpus", "8", "--memory", "4G", "--count", "2")
	if err != nil || len(r.VMs) != 2 || !r.VMs[0].Fits || !r.VMs[1].Fits || len(r.VMs[0].Cells) != 1 {
		t.Fatalf("%v %+v", err, r)
	}
	if slices.ContainsFunc(r.VMs[0].VCPUs, func(cpu string) bool { return slices.Contains(r.VMs[1].VCPUs, cpu) }) {
		t.Errorf("both VMs are on the same CPUs: %v and %v", r.VMs[0].VCPUs, r.VMs[1].VCPUs)
	}
	r, err = fitJSON(t, "--cpus", "16", "--memory", "4G", "--numa", "4")
	if err != nil || len(r.VMs[0].Cells) != 4 {
		t.Errorf("4 cells: %v %+v", err, r)
	}
	r, err = fitJSON(t, "--cpus", "4", "--memory", "1G", "--property", "hw:cpu_policy=dedicated", "--property",
		"hw:cpu_thread_policy=isolate", "--property", "hw:emulator_threads_policy=isolate")
	if err != nil || r.VMs[0].Emulator == "" || slices.Contains(r.VMs[0].VCPUs, r.VMs[0].Emulator) ||
		r.VMs[0].Extra == "" {
		t.Errorf("isolate: %v %+v", err, r)
	}
	r, err = fitJSON(t, "--cpus", "2", "--memory", "1G", "--property", "hw:numa_nodes=1", "--shared", "0-1")
	if err != nil || r.VMs[0].Floating != "0-1" || strings.HasPrefix(r.Free, "0") {
		t.Errorf("shared: %v %+v", err, r)
	}
}

func TestHostFitRefuses(t *testing.T) {
	r, err := fitJSON(t, "--cpus", "128", "--memory", "8G")
	if (err != app.ExitError{Status: app.ExitFailed}) || r.VMs[0].Fits || r.VMs[0].Reason == "" || r.Instead == nil ||
		r.Instead.CPUs != 96 || r.Instead.Memory != "6G" {
		t.Errorf("%v %+v", err, r)
	}
	r, err = fitJSON(t, "--cpus", "48", "--memory", "2G", "--count", "5")
	if (err != app.ExitError{Status: app.ExitFailed}) || len(r.VMs) != 3 || !r.VMs[1].Fits || r.VMs[2].Fits ||
		r.Instead != nil || r.Free != "" {
		t.Errorf("third of 48 vCPUs on 96: %v %+v", err, r)
	}
	for _, args := range [][]string{
		{},
		{"--cpus", "4"},
		{"--cpus", "4", "--memory", "1G", "--threads", "avoid"},
		{"--cpus", "4", "--memory", "1G", "--emulator", "away"},
		{"--cpus", "4", "--memory", "1G", "--numa", "0"},
		{"--cpus", "4", "--memory", "1G", "--page-size", "3x"},
		{"--cpus", "4", "--memory", "1G", "--count", "0"},
		{"--cpus", "4", "--memory", "1G", "--property", "hw:cpu_policy=dedicated", "--threads", "isolate"},
		{"--cpus", "4", "--memory", "1G", "--property", "hw:cpu_policy"},
		{"--cpus", "4", "--memory", "1G", "--property", "hw:cpu_policy=shared"},
		{"--cpus", "4", "--memory", "1G", "--shared", "4000"},
		{"--cpus", "4", "--memory", "1G", "--shared", "0", "--overcommit", "-1"},
		{"--cpus", "4", "--memory", "1G", "--from", "testdata/nowhere"},
		{"--cases", "testdata/nowhere.json"},
		{"--cases", "x", "--cpus", "3"},
	} {
		if len(args) > 0 && args[0] != "--cases" && !slices.Contains(args, "--from") {
			args = append(args, "--from", epyc)
		}
		if out, err := fit(t, args...); err == nil {
			t.Errorf("%v: no error\n%s", args, out)
		}
	}
}

// Nonsense is no refusal: scripts tell "does not fit" from "was not asked" by the exit status.
func TestHostFitNonsense(t *testing.T) {
	for _, args := range [][]string{
		{"--memory", "4X"}, {"--reserve", "5-2"}, {"--cpus", "3000"}, {"--property", "hw:x=1"}, {"--memory", "1"},
		{"--memory", "63M"},
		{"--beside", "1x1M"}, {"--numa", "2"},
	} {
		var stdout, stderr bytes.Buffer
		a := &app.App{Out: &stdout, Err: &stderr}
		root := a.Tree(app.Group{Title: "Hosts", Commands: Commands(a)})
		root.SetArgs(append([]string{"host", "fit", "--cpus", "1", "--memory", "1G", "--from", epyc}, args...))
		if err := root.ExecuteContext(t.Context()); err != (app.ExitError{Status: app.ExitUsage}) ||
			!strings.Contains(stderr.String(), "try: ") || strings.Contains(stderr.String(), "1 vCPUs") {
			t.Errorf("%v: %v\n%s", args, err, stderr.String())
		}
		if strings.Join(args, " ") == "--memory 1" &&
			!strings.Contains(stderr.String(), "1 byte of memory is less than any VM starts with [bad-shape]") {
			t.Errorf("one byte: %s", stderr.String())
		}
	}
	r, err := fitJSON(t, "--cpus", "128", "--memory", "64M")
	if (err != app.ExitError{Status: app.ExitFailed}) || r.Instead != nil {
		t.Errorf("smaller than a VM can be: %v %+v", err, r)
	}
}

// TestHostFitRepack fills every node with two VMs, of which one leaves: a VM of a whole node has no room until another
// moves.
func TestHostFitRepack(t *testing.T) {
	args := []string{"--cpus", "12", "--memory", "1G", "--numa", "none"}
	for range 8 {
		args = append(args, "--beside", "6x1G-", "--beside", "6x1G")
	}
	r, err := fitJSON(t, args...)
	if (err != app.ExitError{Status: app.ExitFailed}) || r.VMs[0].Fits || r.Instead == nil || r.Instead.CPUs != 6 ||
		r.Instead.Memory != "512M" {
		t.Fatalf("without moves: %v %+v", err, r)
	}
	r, err = fitJSON(t, append(args, "--repack")...)
	if err != nil || !r.VMs[0].Fits || len(r.VMs[0].Moves) != 1 || r.VMs[0].Moves[0].VCPUs != 6 {
		t.Errorf("with moves: %v %+v", err, r)
	}
	for _, beside := range []string{"6", "x1G", "6x1Q", "6y1G", "200x1G"} {
		if _, err := fit(t, "--cpus", "1", "--memory", "1G", "--from", epyc, "--beside", beside); err == nil {
			t.Errorf("--beside %s: no error", beside)
		}
	}
}

func TestHostFitCases(t *testing.T) {
	const cell = `"host":{"cells":[{"id":3,"dedicated_cpus":[4,5],"siblings":[[4,5]],"memory_mb":2048,"pages":[{"size_kb":4,"total":524288}]}]}`
	file := filepath.Join(t.TempDir(), "cases.json")
	text := `[
		{"id":"a",` + cell + `,"request":{"cells":[{"vcpus_dedicated":[7],"memory_mb":64,"cpu_policy":"dedicated"}],"emulator_threads":"isolate"}},
		{"id":"b",` + cell + `,"request":{"cells":[{"vcpus_dedicated":[0,1,2],"memory_mb":64,"cpu_policy":"dedicated"}]}},
		{"id":"c","request":{}}]`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := fit(t, "--cases", file, "--json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if (err != app.ExitError{Status: app.ExitFailed}) || len(lines) != 3 {
		t.Fatalf("%v\n%s", err, out)
	}
	if lines[0] != `{"id":"a","fits":true,"cells":[{"host_cell":3,"pagesize_kb":4,"pin":{"7":4},"reserved_cpus":[5]}],"reason":""}` {
		t.Error(lines[0])
	}
	if !strings.HasPrefix(lines[1], `{"id":"b","fits":false,"cells":[],"reason":"`) ||
		strings.HasSuffix(lines[1], `"reason":""}`) {
		t.Error(lines[1])
	}
	if !strings.HasPrefix(lines[2], `{"id":"c","error":"`) {
		t.Error(lines[2])
	}
	out, err = fit(t, "--cases", file)
	if (err != app.ExitError{Status: app.ExitFailed}) || !strings.Contains(out, "node 3 CPUs 4 and 5") ||
		!strings.Contains(out, "does not fit") || !strings.Contains(out, "makes no sense") {
		t.Errorf("%v\n%s", err, out)
	}
}
