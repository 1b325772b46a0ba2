package tune

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/hosttree"
)

const before2015 = "../../tuning/testdata/hosts/cern-2015-before.txtar"

// tune runs a command of grange tune; what it says on the side goes to the test's log.
func tune(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out, side bytes.Buffer
	a := &app.App{Out: &out, Err: &side}
	root := a.Tree(app.Group{Title: "Hosts", Commands: Commands(a)})
	root.SetArgs(append([]string{"tune"}, args...))
	err := root.ExecuteContext(t.Context())
	t.Log(side.String())
	return out.String(), err
}

// recorded is a recorded host as a directory.
func recorded(t *testing.T) string {
	t.Helper()
	tree, err := hosttree.Open(before2015)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	dir := t.TempDir()
	if err := os.CopyFS(dir, tree.FS); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestTunePlanOfARecording(t *testing.T) {
	text, err := tune(t, "plan", "--from", before2015, "--rule", "ept-off")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"+options kvm_intel ept=1", "module kvm_intel: load anew with ept: N → 1  [no VMs]",
		"not now: running on this host: 1 VM: qemu-kvm (PID 2200)"} {
		if !strings.Contains(text, want) {
			t.Errorf("the plan does not say %q:\n%s", want, text)
		}
	}
	text, err = tune(t, "plan", "--from", before2015, "--rule", "ept-off", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var plan planOut
	if err := json.Unmarshal([]byte(text), &plan); err != nil {
		t.Fatal(err)
	}
	if len(plan.Findings) != 1 || len(plan.Steps) != 3 || len(plan.Findings[0].Steps) != 3 ||
		plan.Steps[2].New != "ept=1" || plan.Blocked == "" || plan.Findings[0].Danger == "" {
		t.Errorf("plan: %+v", plan)
	}
}

func TestTuneApplyToATree(t *testing.T) {
	dir := recorded(t)
	if _, err := tune(t, "apply", "--root", dir); app.CodeOf(err) != "needs-yes" {
		t.Errorf("apply without a yes: %v", err)
	}
	if text, err := tune(t, "history", "--root", dir, "--json"); err != nil || text != "[]\n" {
		t.Errorf("history before any apply: %v %s", err, text)
	}
	text, err := tune(t, "apply", "--root", dir, "--yes", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var applied appliedJSON
	if err := json.Unmarshal([]byte(text), &applied); err != nil || applied.Phase != "applied" || applied.Steps == 0 {
		t.Fatalf("apply: %v\n%s", err, text)
	}
	for _, r := range applied.Remaining {
		if r.Rule == "ept-off" || r.Manual == "" {
			t.Errorf("left over: %+v", r)
		}
	}
	if text, err := tune(t, "drift", "--root", dir); err != nil {
		t.Errorf("drift right after apply: %v %s", err, text)
	}
	if err := os.WriteFile(dir+"/sys/kernel/mm/ksm/run", []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	text, err = tune(t, "drift", "--root", dir, "--json")
	var drifted []driftJSON
	if json.Unmarshal([]byte(text), &drifted) != nil || len(drifted) != 1 || drifted[0].Set != "0" ||
		drifted[0].Now != "1" {
		t.Errorf("drift: %s", text)
	}
	if err != (app.ExitError{Status: app.ExitDrift}) {
		t.Errorf("drift ends with %v, want status %d", err, app.ExitDrift)
	}
	if _, err := tune(t, "undo", "--root", dir, applied.ID); err != nil { // 1 is what was there before, too
		t.Fatal(err)
	}
	text, err = tune(t, "history", "--root", dir)
	if err != nil || !strings.Contains(text, applied.ID) || !strings.Contains(text, "undone") ||
		!strings.Contains(text, "ept-off") {
		t.Errorf("history: %v\n%s", err, text)
	}
	if _, err := tune(t, "undo", "--root", dir, applied.ID); app.CodeOf(err) != "no-such-apply" {
		t.Errorf("undo again: %v", err)
	}
}

func TestTuneRootIsAHost(t *testing.T) {
	for _, dir := range []string{t.TempDir(), "/no/such/directory"} {
		if _, err := tune(t, "plan", "--root", dir); app.CodeOf(err) != "usage" {
			t.Errorf("plan --root %s: %v", dir, err)
		}
	}
}
