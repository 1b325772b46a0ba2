package tune

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/tuning/verify"
)

// verifyCase lays a case of internal/tuning/verify out as a directory, and verifies it as a recorded host.
func verifyCase(t *testing.T, name string, args ...string) (out string, status int) {
	t.Helper()
	dir := t.TempDir()
	for _, archive := range []string{"host", name} {
		text, err := os.ReadFile("../../tuning/verify/testdata/" + archive + ".txtar")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range strings.Split("\n"+string(text), "\n-- ")[1:] {
			path, content, _ := strings.Cut(file, " --\n")
			path = filepath.Join(dir, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	var text bytes.Buffer
	a := &app.App{Out: &text, Err: &text}
	root := a.Tree(app.Group{Title: "Hosts", Commands: Commands(a)})
	root.SetArgs(append([]string{"tune", "verify", "--from", dir}, args...))
	err := root.ExecuteContext(t.Context())
	var exit app.ExitError
	switch {
	case errors.As(err, &exit):
		return text.String(), exit.Status
	case err != nil:
		app.PrintError(&text, err)
		return text.String(), app.StatusOf(err)
	}
	return text.String(), 0
}

func TestTuneVerify(t *testing.T) {
	for _, c := range []struct {
		name   string
		args   []string
		status int
		says   []string
	}{
		{"healthy", nil, 0, []string{"vCPU 0", "emulator", "I/O thread 1", "node 0: 1024.0M", "proven"}},
		{"overcommit", nil, 0, []string{"vCPUs 0-7", "floating"}},
		{"remote-memory", nil, 4, []string{"remote-memory", "node 0: 256.0M, node 1: 768.0M", "try:", "why:"}},
		{"remote-memory", []string{"web"}, 4, []string{"remote-memory"}},
		{"two-on-one-cpu", nil, 5, []string{"fault: tier0-a, tier0-b: ", "Tier-0 Resources"}},
		{"two-on-one-cpu", []string{"tier0-b"}, 5, []string{"crowded-cpus"}},
		{"isolated", []string{"lone"}, 0, []string{"advice: lone: "}},
		{"unseen", nil, 4, []string{"vCPUs 0-1  -        2-3      -       -       unproven", "warning: tier0-a: ",
			"process 300"}},
		{"healthy", []string{"nobody"}, 1, []string{`no VM "nobody"`, "try:"}},
	} {
		out, status := verifyCase(t, c.name, c.args...)
		if status != c.status {
			t.Errorf("%s %v: status %d, want %d\n%s", c.name, c.args, status, c.status, out)
		}
		for _, s := range c.says {
			if !strings.Contains(out, s) {
				t.Errorf("%s %v does not say %q:\n%s", c.name, c.args, s, out)
			}
		}
	}
	if out, _ := verifyCase(t, "isolated", "lone"); strings.Contains(out, "3,6-7") {
		t.Errorf("another VM's problems, too:\n%s", out)
	}
}

func TestTuneVerifyJSON(t *testing.T) {
	out, status := verifyCase(t, "two-on-one-cpu", "--json")
	var got verifyJSON
	if err := json.Unmarshal([]byte(out), &got); err != nil || status != 5 {
		t.Fatalf("status %d, %v:\n%s", status, err, out)
	}
	if len(got.VMs) != 2 || len(got.VMs[0].Threads) != 5 ||
		got.VMs[0].Threads[0] != (verifyThread{Thread: "vCPU 0", Libvirt: "0-1,4-5", Kernel: "0-1,4-5"}) {
		t.Errorf("VMs %+v", got.VMs)
	}
	if len(got.Problems) != 1 || got.Problems[0].Kind != "crowded-cpus" || got.Problems[0].Severity != "fault" ||
		got.Problems[0].CPUs != "0-1,4-5" {
		t.Errorf("problems %+v", got.Problems)
	}
}

// Anybody may name a VM, also so that it would write to the terminal of whoever looks at it.
func TestProofIsPrintable(t *testing.T) {
	const name = "a\x1b]0;b\u202ec"
	var text bytes.Buffer
	a := &app.App{Out: &text}
	report := verify.Report{VMs: []verify.VM{{Name: name, Lines: []verify.Line{{Thread: "emulator"}}}},
		Problems: []verify.Problem{{VM: name, Others: []string{name}, Message: "beside " + name}}}
	if err := (tuneCommands{a}).printProof(report, []string{"VM " + name}); err != nil {
		t.Fatal(err)
	}
	if got := text.String(); strings.ContainsAny(got, "\x1b\u202e") || strings.Count(got, "a?]0;b?c") != 5 {
		t.Errorf("printed %q", got)
	}
}
