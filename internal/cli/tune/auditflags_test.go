package tune

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
)

func TestAuditFormatByName(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]string{"a.html": "<!DOCTYPE html>", "a.json": `"rules_asked"`,
		"a.sarif":      `"ruleId"`,
		"b.SARIF.json": `"ruleId"`, "b.txt": "FAULT  ept-off", "b": "FAULT  ept-off"} {
		file := filepath.Join(dir, name)
		runCommand(t, "tune", "audit", "--from", host2015, "-o", file)
		if text, err := os.ReadFile(file); err != nil ||
			!strings.Contains(strings.ToLower(string(text)), strings.ToLower(want)) {
			t.Errorf("%s: %v, %.80s", name, err, text)
		}
	}
	file := filepath.Join(dir, "c.html")
	runCommand(t, "tune", "audit", "--from", host2015, "-o", file, "--format", "json")
	if text, _ := os.ReadFile(file); !strings.HasPrefix(string(text), "{") {
		t.Errorf("--format does not count: %.80s", text)
	}
	for _, args := range []string{"--json --format html", "--json --format table", "--format="} {
		_, err := runCommand(t, append([]string{"tune", "audit", "--from", wellMade}, strings.Fields(args)...)...)
		if err == nil || app.StatusOf(err) != app.ExitUsage || errors.As(err, new(app.ExitError)) {
			t.Errorf("%s: %v", args, err)
		}
	}
	if _, err := runCommand(t, "tune", "audit", "--from", wellMade, "--json", "--format", "json"); err != nil {
		t.Error(err)
	}
}

// A report that cannot be written leaves the one before it, and is no mistake of the command line.
func TestAuditKeepsTheOldReport(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.json")
	link := filepath.Join(dir, "link.json")
	if err := errors.Join(os.WriteFile(file, []byte("old"), 0o600), os.Symlink("a.json", link)); err != nil {
		t.Fatal(err)
	}
	runCommand(t, "tune", "audit", "--from", wellMade, "-o", link)
	text, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(text), "{") {
		t.Errorf("the link was not followed: %v, %.40s", err, text)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("left behind: %v", entries)
	}
	_, err = runCommand(t, "tune", "audit", "--from", wellMade, "-o", "/dev/full")
	if own := new(farm.Error); !errors.As(err, &own) || own.Code != output.CodeLostOutput ||
		app.StatusOf(err) != app.ExitFailed {
		t.Errorf("full device: %v", err)
	}
}

func TestAuditNextCommands(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(host2015)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "it's.txtar")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := runCommand(t, "tune", "audit", "--from", file, "--role", "compute", "--skip", "ksm-on-compute",
		"--profile", "generic-compute")
	want := "\n  grange tune plan --from '" + strings.ReplaceAll(file, "'", `'\''`) +
		"' --profile generic-compute --role compute --skip ksm-on-compute\n"
	if !strings.Contains(out, want) || !strings.Contains(out, "\n  grange tune explain ept-off\n") {
		t.Errorf("no %s in\n%s", want, out)
	}
}

// Nothing found by no rule looks like a host without a fault.
func TestAuditWithoutARule(t *testing.T) {
	_, err := runCommand(t, "tune", "audit", "--from", wellMade, "--role", "compute", "--rule", "guest-thp")
	own := new(farm.Error)
	if !errors.As(err, &own) || own.Code != farm.CodeUsage ||
		!strings.Contains(own.Message, "guest-thp: does not hold for a host of role compute") {
		t.Errorf("%v", err)
	}
	text, err := runCommand(t, "tune", "audit", "--from", wellMade, "--role", "compute", "--rule", "guest-thp,ept-off")
	if err != nil || !strings.Contains(text, "not asked: guest-thp: does not hold for a host of role compute\n") ||
		!strings.Contains(text, "by 1 rule\n") {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestAuditOfAFragment(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "cut.txtar")
	recorded, err := os.ReadFile(host2015)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string // what a cut-off recording would hold: processors and nothing else
	for _, part := range strings.Split("\n"+string(recorded), "\n-- ")[1:] {
		if strings.HasPrefix(part, "sys/devices/system/") || strings.HasPrefix(part, "proc/cpuinfo") {
			kept = append(kept, "-- "+part)
		}
	}
	if err := os.WriteFile(file, []byte(strings.Join(kept, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text, _ := runCommand(t, "tune", "audit", "--from", file)
	if lines := strings.Split(text, "\n"); len(lines) < 4 ||
		!slices.ContainsFunc(lines[:4], func(l string) bool { return strings.HasPrefix(l, "NOTE  ") }) {
		t.Errorf("the head does not tell:\n%.400s", text)
	}
	text, _ = runCommand(t, "tune", "audit", "--from", file, "-o", filepath.Join(dir, "x"))
	if !strings.Contains(text, "\nnote: ") {
		t.Errorf("the summary does not tell: %s", text)
	}
}

func TestCompletionOfLists(t *testing.T) {
	for args, want := range map[string][]string{
		"tune audit --rule ksm-on-compute,ept-off-n": {"ksm-on-compute,ept-off-next-load"},
		"tune plan --skip ept-off,ept-of":            {"ept-off,ept-off-centos7-guest", "ept-off,ept-off-next-load"},
		"tune audit --fail-on f":                     {"fault"},
		"tune profiles cern-tier":                    {"cern-tier0-guest"},
		"tune explain ept-off-n":                     {"ept-off-next-load"},
	} {
		text, err := runCommand(t, append([]string{"__complete"}, strings.Fields(args)...)...)
		var got []string
		for line := range strings.Lines(text) {
			if name, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); !strings.HasPrefix(name, ":") &&
				!strings.HasPrefix(name, "Completion ended") {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %q", args, err, got)
		}
	}
}

// TestAuditAsAPlugIn: monitors show standard output, and go by the exit status.
func TestAuditAsAPlugIn(t *testing.T) {
	for name, c := range map[string]struct {
		from, begins string
		status       int
	}{
		"faults":  {host2015, "TUNING CRITICAL - ", 2},
		"nothing": {"/nowhere/at/all.tar", "TUNING UNKNOWN - ", 3},
	} {
		out, err := runCommand(t, "tune", "audit", "--from", c.from, "--format", "nagios")
		exit, _ := errors.AsType[app.ExitError](err)
		if exit.Status != c.status || !strings.HasPrefix(out, c.begins) {
			t.Errorf("%s: status %d, %v\n%s", name, exit.Status, err, out)
		}
		first, rest, _ := strings.Cut(out, "\n")
		if figures := strings.Contains(first, " | faults="); figures == (c.status == 3) || strings.Contains(rest, "|") {
			t.Errorf("%s: %s", name, out)
		}
	}
	_, err := runCommand(t, "tune", "audit", "--from", wellMade, "--format", "nagios", "--fail-on", "fault")
	if app.StatusOf(err) != app.ExitUsage {
		t.Error(err)
	}
}

func TestAuditForPrometheus(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tune.prom")
	runCommand(t, "tune", "audit", "--from", host2015, "-o", file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{`grange_tune_rule_findings{rule="ept-off",severity="fault"} 1`,
		"# TYPE grange_tune_findings gauge", "grange_tune_audit_timestamp_seconds 1"} {
		if !strings.Contains(string(text), "\n"+line) && !strings.HasPrefix(string(text), line) {
			t.Errorf("no line %s in\n%s", line, text)
		}
	}
}
