package tune

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
	"github.com/grange-project/grange/internal/tuning/report"
)

const (
	host2015 = "../../tuning/testdata/hosts/cern-2015-before.txtar"
	wellMade = "../../tuning/testdata/rules/base.txtar"
)

// runCommand runs the command line, and gives what it prints and its error.
func runCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	a := &app.App{Out: &out, Err: &out}
	root := a.Tree(app.Group{Title: "Hosts", Commands: Commands(a)})
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestAuditExitStatus(t *testing.T) {
	for _, c := range []struct {
		args string
		want int
	}{
		{"--from " + host2015, app.ExitFault},
		{"--from " + host2015 + " --fail-on fault", app.ExitFault},
		{"--from " + host2015 + " --fail-on never", 0},
		{"--from " + host2015 + " --rule ksm-on-compute", app.ExitWarning},
		{"--from " + host2015 + " --rule ksm-on-compute --fail-on fault", 0},
		{"--from " + host2015 + " --rule vm-topology-sockets", 0},
		{"--from " + host2015 + " --rule vm-topology-sockets --fail-on advice", app.ExitAdvice},
		{"--from " + wellMade + " --fail-on advice", 0},
	} {
		text, err := runCommand(t, append([]string{"tune", "audit"}, strings.Fields(c.args)...)...)
		status := app.ExitError{}
		if err != nil && !errors.As(err, &status) {
			t.Errorf("%s: %v", c.args, err)
		}
		if status.Status != c.want {
			t.Errorf("%s: exit status %d, want %d\n%s", c.args, status.Status, c.want, text)
		}
	}
}

// The statuses of the audit are none of those that mean something else.
func TestAuditStatusesAreTheirOwn(t *testing.T) {
	seen := map[int]bool{0: true, app.ExitFailed: true, app.ExitUsage: true, batch.ExitVMLost: true,
		batch.ExitNotStarted: true}
	for severity := tuning.Advice; severity <= tuning.Fault; severity++ {
		if n := exitOf[severity]; seen[n] {
			t.Errorf("status %d of %v means something else already", n, severity)
		} else {
			seen[n] = true
		}
	}
}

func TestAuditFormats(t *testing.T) {
	for format, want := range map[string]string{"table": "FAULT  ept-off", "json": `"rule": "ept-off"`,
		"sarif": `"ruleId": "ept-off"`, "html": `id="ept-off"`} {
		text, _ := runCommand(t, "tune", "audit", "--from", host2015, "--format", format)
		if !strings.Contains(text, want) {
			t.Errorf("%s lacks %s:\n%.400s", format, want, text)
		}
		if strings.Contains(text, "\x1b") {
			t.Errorf("%s is coloured where there is no terminal", format)
		}
		file := filepath.Join(t.TempDir(), "report")
		text, _ = runCommand(t, "tune", "audit", "--from", host2015, "--format", format, "-o", file)
		written, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(written, []byte(want)) || !strings.HasPrefix(text, file+": 1 fault, ") ||
			strings.Count(text, "\n") != 1 {
			t.Errorf("%s -o: %v, printed %q", format, err, text)
		}
	}
}

func TestAuditJSON(t *testing.T) {
	text, _ := runCommand(t, "tune", "audit", "--from", host2015, "--json")
	var a report.Audit
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatal(err)
	}
	if a.Host.Threads != 32 || a.Role != "compute" || a.Profile != "cern-e5-2650v2-compute" || a.Counts.Fault != 1 ||
		a.Source != host2015 {
		t.Errorf("%+v", a)
	}
	if n := a.Asked + len(a.Skipped); n != len(tuning.Rules()) {
		t.Errorf("%d rules asked or skipped of %d", n, len(tuning.Rules()))
	}
	if len(a.Findings) != a.Counts.Fault+a.Counts.Warning+a.Counts.Advice || len(a.Rules) == 0 {
		t.Errorf("%d findings, counts %+v, %d rules", len(a.Findings), a.Counts, len(a.Rules))
	}
}

func TestAuditProfiles(t *testing.T) {
	text, err := runCommand(t, "tune", "profiles", "generic-service")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "site.toml")
	if err := os.WriteFile(file, []byte(strings.Replace(text, `name = "generic-service"`, `name = "our-service"`, 1)),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, profile, role string }{
		{"--profile generic-service", "generic-service", "service"},
		{"--profile " + file, "our-service", "service"},
		{"--profile generic-service --role compute", "generic-service", "compute"},
		{"--role service", "generic-service", "service"},
		{"--role guest", "generic-guest", "guest"},
	} {
		text, _ := runCommand(t, append([]string{"tune", "audit", "--json", "--from", wellMade},
			strings.Fields(c.args)...)...)
		var a report.Audit
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			t.Errorf("%s: %v\n%.300s", c.args, err, text)
		} else if a.Profile != c.profile || a.Role != c.role {
			t.Errorf("%s: profile %s, role %s", c.args, a.Profile, a.Role)
		}
	}
}

func TestAuditErrors(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.toml")
	if err := os.WriteFile(bad, []byte("name = \"bad\"\nrole = \"compute\"\npinnned = true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code farm.Code
		hint string
	}{
		{"audit --role cook", farm.CodeUsage, "write compute, service, guest"},
		{"audit --format pdf", farm.CodeUsage, "write table, json, sarif, html"},
		{"audit --fail-on panic", farm.CodeUsage, "write fault, warning, advice, never"},
		{"audit --profile fast", farm.CodeNoProfile, "generic-compute"},
		{"audit --profile ./none.toml", farm.CodeNoProfile, "grange tune profiles"},
		{"audit --profile " + bad, farm.CodeBadProfile, "docs/guide/tuning.md"},
		{"audit --rule ept-of", farm.CodeNoRule, "ept-off"},
		{"audit --skip elephants", farm.CodeNoRule, "grange tune rules"},
		{"explain ept", farm.CodeNoRule, "did you mean ept-off?"},
		{"profiles fast", farm.CodeNoProfile, "generic-compute"},
		{"audit -o /nowhere/at/all --fail-on never", output.CodeLostOutput, "name another file"},
		{"audit --profile /dev/null", farm.CodeBadProfile, "docs/guide/tuning.md"},
		{"audit --profile /dev/zero", farm.CodeBadProfile, "grange tune profiles NAME"},
	} {
		args := append([]string{"tune"}, strings.Fields(c.args)...)
		if args[1] == "audit" {
			args = append(args, "--from", wellMade)
		}
		_, err := runCommand(t, args...)
		own := new(farm.Error)
		if !errors.As(err, &own) || own.Code != c.code || !strings.Contains(own.Hint, c.hint) {
			t.Errorf("%s: %v, hint %q", c.args, err, own.Hint)
		}
	}
}

func TestRulesAndExplain(t *testing.T) {
	text, err := runCommand(t, "tune", "rules", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var list []report.Rule
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) < 40 || len(list) != len(tuning.Rules()) {
		t.Errorf("%d rules", len(list))
	}
	for _, r := range list {
		if r.ID == "" || r.Severity == "" || len(r.Sources) == 0 || len(r.Roles) == 0 {
			t.Errorf("%+v", r)
		}
	}
	text, err = runCommand(t, "tune", "explain", "ept-off", "--json")
	var one report.Rule
	if err != nil || json.Unmarshal([]byte(text), &one) != nil || one.ID != "ept-off" {
		t.Errorf("%v: %s", err, text)
	}
}

func TestTuneCompletion(t *testing.T) {
	for args, want := range map[string]string{
		"tune explain ep": "ept-off\t", "tune audit --rule ept": "ept-off\t",
		"tune audit --profile gen": "generic-compute\t",
		"tune audit --format s":    "sarif", "tune audit --role g": "guest", "tune audit --fail-on n": "never",
		"tune profiles amd": "amd-epyc-compute\t",
	} {
		text, err := runCommand(t, append([]string{"__complete"}, strings.Fields(args)...)...)
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%s: %v\n%s", args, err, text)
		}
	}
}
