package tune

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/tuning"
	"github.com/grange-project/grange/internal/tuning/apply"
)

const (
	thp   = "/sys/kernel/mm/transparent_hugepage/enabled"
	pages = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
	ksm   = "/sys/kernel/mm/ksm/"
)

// value reads a setting: the chosen word where there are several.
func value(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSpace(string(b))
	if _, rest, ok := strings.Cut(text, "["); ok {
		text, _, _ = strings.Cut(rest, "]")
	}
	return text
}

// other is one of two values that is not the present one.
func other(t *testing.T, name, a, b string) string {
	t.Helper()
	if value(t, name) == a {
		return b
	}
	return a
}

// changes asks for other settings than this machine has: four huge pages more on node 0, others words for transparent
// huge pages, and a KSM that runs.
func changes(t *testing.T) []tuning.Finding {
	t.Helper()
	node := "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"
	n, err := strconv.Atoi(value(t, node))
	if err != nil {
		t.Fatal(err)
	}
	defrag := "/sys/kernel/mm/transparent_hugepage/defrag"
	set := func(name, value string) tuning.Change {
		return tuning.Change{Kind: tuning.SetValue, Path: name[1:], Value: value}
	}
	return []tuning.Finding{{Rule: "test", Severity: tuning.Warning, Where: "host", Changes: []tuning.Change{
		set(node, fmt.Sprint(n+4)),
		set(thp, other(t, thp, "madvise", "always")),
		set(defrag, other(t, defrag, "madvise", "defer")),
		set(ksm+"run", other(t, ksm+"run", "1", "0")),
		set(ksm+"sleep_millisecs", other(t, ksm+"sleep_millisecs", "2000", "1000")),
		set(ksm+"pages_to_scan", other(t, ksm+"pages_to_scan", "50", "60")),
		set("/proc/sys/vm/swappiness", other(t, "/proc/sys/vm/swappiness", "59", "58")),
	}}}
}

// unmerged ends what KSM may have begun in other programs meanwhile.
func unmerged(t *testing.T) {
	t.Helper()
	run := value(t, ksm+"run")
	if run != "0" || value(t, ksm+"pages_shared") != "0" {
		return
	}
	t.Cleanup(func() {
		for _, v := range []string{"2", run} {
			if err := os.WriteFile(ksm+"run", []byte(v), 0); err != nil {
				t.Error(err)
			}
		}
	})
}

func encode(t *testing.T, findings []tuning.Finding) string {
	t.Helper()
	text, err := json.Marshal(findings)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// output runs a command to its end.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

func TestApplyAndUndo(t *testing.T) {
	forget(t)
	unmerged(t)
	before, swappiness := settings(t), value(t, "/proc/sys/vm/swappiness")
	wanted := changes(t)
	output(t, worker(t, encode(t, wanted)))
	for _, c := range wanted[0].Changes {
		if got := value(t, "/"+c.Path); got != c.Value {
			t.Errorf("/%s is %q after apply, want %q", c.Path, got, c.Value)
		}
	}
	if out := output(t, exec.CommandContext(t.Context(), program, "tune", "drift")); !strings.Contains(out,
		"as it was set") {
		t.Errorf("drift right after apply: %s", out)
	}
	output(t, worker(t, "undo"))
	same(t, before, "after undo")
	if got := value(t, "/proc/sys/vm/swappiness"); got != swappiness {
		t.Errorf("swappiness is %s after undo, was %s", got, swappiness)
	}
}

// TestKilled kills applies and undos at many moments; a last undo leaves everything as it was.
func TestKilled(t *testing.T) {
	forget(t)
	unmerged(t)
	before := settings(t)
	task := encode(t, changes(t))
	begin := time.Now()
	output(t, worker(t, task))
	whole := time.Since(begin)
	output(t, worker(t, "undo"))
	same(t, before, "after undo")
	r := rand.New(rand.NewPCG(1, 2))
	const rounds = 30
	cut := 0
	for n := range rounds {
		killAfter(t, worker(t, task), whole*time.Duration(n)/rounds+time.Duration(r.Int64N(int64(whole/rounds)+1)))
		switch phase := lastPhase(t); phase {
		case apply.Applying:
			cut++
			if out, err := worker(t, task).CombinedOutput(); err == nil ||
				!strings.Contains(string(out), "was cut short") {
				t.Fatalf("an apply after one that was killed: %v, %s", err, out)
			}
		case apply.Applied:
		default:
			same(t, before, fmt.Sprintf("killed before anything began (%q)", phase))
			continue
		}
		for range n % 4 {
			killAfter(t, worker(t, "undo"), time.Duration(r.Int64N(int64(whole)+1)))
		}
		if phase := lastPhase(t); phase != apply.Undone {
			output(t, worker(t, "undo"))
		}
		same(t, before, fmt.Sprintf("round %d", n))
	}
	t.Logf("%d of %d kills hit an apply at work (%v)", cut, rounds, whole)
	if cut == 0 {
		t.Error("no kill hit an apply at work")
	}
}

func killAfter(t *testing.T, cmd *exec.Cmd, d time.Duration) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(d, func() { cmd.Process.Kill() })
	cmd.Wait()
}

// lastPhase is how far the last apply came; "" when there is none.
func lastPhase(t *testing.T) apply.Phase {
	t.Helper()
	root, err := os.OpenRoot("/")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	runs, err := apply.History(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) == 0 {
		return ""
	}
	return runs[len(runs)-1].Phase
}

// thpProfile is a profile that wants nothing but this of transparent huge pages.
func thpProfile(t *testing.T, want string) string {
	t.Helper()
	profile := t.TempDir() + "/profile.toml"
	text := fmt.Sprintf("name = \"test\"\ntitle = \"test\"\nrole = \"compute\"\nthp = %q\n[[source]]\nname = \"this "+
		"test\"\nsays = \"nothing\"\n", want)
	if err := os.WriteFile(profile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return profile
}

// TestCommandLineKilled kills the real program at many moments, and takes back what it did by the real program.
func TestCommandLineKilled(t *testing.T) {
	forget(t)
	before := settings(t)
	args := []string{"tune", "apply", "--yes", "--rule", "thp-policy", "--profile",
		thpProfile(t, other(t, thp, "madvise", "always"))}
	begin := time.Now()
	output(t, exec.CommandContext(t.Context(), program, args...))
	whole := time.Since(begin)
	output(t, exec.CommandContext(t.Context(), program, "tune", "undo"))
	const rounds = 20
	for n := range rounds {
		killAfter(t, exec.CommandContext(t.Context(), program, args...), whole*time.Duration(n)/rounds)
		if phase := lastPhase(t); phase != apply.Undone && phase != apply.Planned {
			output(t, exec.CommandContext(t.Context(), program, "tune", "undo"))
		}
		same(t, before, fmt.Sprintf("round %d", n))
	}
}

// TestCommandLine applies one rule of a real audit by the real program, and takes it back.
func TestCommandLine(t *testing.T) {
	forget(t)
	before := settings(t)
	want := other(t, thp, "madvise", "always")
	profile := thpProfile(t, want)
	run := func(args ...string) string {
		return output(t, exec.CommandContext(t.Context(), program, append([]string{"tune"}, args...)...))
	}
	if plan := run("plan", "--profile", profile, "--rule", "thp-policy"); !strings.Contains(plan, thp) {
		t.Fatalf("the plan does not name %s:\n%s", thp, plan)
	}
	same(t, before, "after plan")
	if out, err := exec.CommandContext(t.Context(), program, "tune", "apply", "--profile", profile, "--rule",
		"thp-policy").CombinedOutput(); err == nil || !bytes.Contains(out, []byte("needs-yes")) {
		t.Fatalf("apply without a terminal and without --yes: %v\n%s", err, out)
	}
	same(t, before, "after an apply that nobody agreed to")
	run("apply", "--yes", "--profile", profile, "--rule", "thp-policy")
	if got := value(t, thp); got != want {
		t.Errorf("%s is %q after apply, want %q", thp, got, want)
	}
	if history := run("history"); !strings.Contains(history, "applied") || !strings.Contains(history, "thp-policy") {
		t.Errorf("history:\n%s", history)
	}
	if err := os.WriteFile(thp, []byte("never"), 0); err != nil {
		t.Fatal(err)
	}
	drift := exec.CommandContext(t.Context(), program, "tune", "drift")
	if out, _ := drift.CombinedOutput(); drift.ProcessState.ExitCode() != 4 || !bytes.Contains(out, []byte(thp)) {
		t.Errorf("drift: status %d\n%s", drift.ProcessState.ExitCode(), out)
	}
	if out, err := exec.CommandContext(t.Context(), program, "tune", "undo").CombinedOutput(); err == nil ||
		!bytes.Contains(out, []byte("drifted")) {
		t.Errorf("an undo over a change of somebody else: %v\n%s", err, out)
	}
	run("undo", "--force")
	same(t, before, "after undo --force")
}

// TestUnmerge lets KSM merge memory of this test, has it taken apart, and puts KSM back.
func TestUnmerge(t *testing.T) {
	forget(t)
	unmerged(t)
	const size = 256 << 20
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	for i := range memory {
		memory[i] = byte(i%4096) | 1 // equal pages, none of them zero
	}
	for _, advice := range []int{unix.MADV_NOHUGEPAGE, unix.MADV_MERGEABLE} {
		if err := unix.Madvise(memory, advice); err != nil {
			t.Fatal(err)
		}
	}
	// Long scans: a writer of run waits for their end, and may be killed while it does.
	for name, v := range map[string]string{"run": "1", "sleep_millisecs": "1", "pages_to_scan": "1000000"} {
		old := value(t, ksm+name)
		defer os.WriteFile(ksm+name, []byte(old), 0)
		if err := os.WriteFile(ksm+name, []byte(v), 0); err != nil {
			t.Fatal(err)
		}
	}
	sharing := func() int {
		n, _ := strconv.Atoi(value(t, ksm+"pages_sharing"))
		return n
	}
	for sharing() < 1000 {
		if t.Context().Err() != nil {
			t.Fatal("KSM never merged")
		}
		time.Sleep(20 * time.Millisecond)
	}
	running := settings(t)
	task := encode(t, []tuning.Finding{{Rule: "test", Where: "host", Changes: []tuning.Change{{Kind: tuning.Unmerge}}}})
	begin := time.Now()
	output(t, worker(t, task))
	whole := time.Since(begin)
	if n, run := sharing(), value(t, ksm+"run"); n != 0 || run != "0" {
		t.Errorf("%d pages are shared and run is %s after apply, want 0 and 0", n, run)
	}
	output(t, worker(t, "undo"))
	same(t, running, "after undo")
	const rounds = 30
	for n := range rounds { // whoever takes pages apart ends with the program, too
		killAfter(t, worker(t, task), whole*time.Duration(n)/rounds)
		if phase := lastPhase(t); phase != apply.Undone && phase != apply.Planned {
			output(t, worker(t, "undo"))
		}
		same(t, running, fmt.Sprintf("killed, round %d", n))
	}
}
