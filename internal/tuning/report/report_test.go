package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/chart"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
)

var update = flag.Bool("update", false, "write golden files anew")

// hostile is the name of a VM that tries to be more than a name, in a page, in a picture, in a terminal.
const hostile = `x</td></title></svg><script>alert(1)</script>"onload='alert(2)` + "\x1b[2J\u202e"

var about = About{Source: "testdata", Date: time.Date(2026, 11, 21, 4, 30, 0, 0, time.UTC), Version: "v0.2.0"}

// sample is a report with all that a report can have.
func sample() tuning.Report {
	set := farm.NewCPUSet
	h := farm.HostFacts{
		Name: "node17", OS: farm.OSRelease{Name: "Debian GNU/Linux 12"}, Kernel: farm.Kernel{Release: "6.1.0"},
		Versions: farm.Versions{QEMU: "7.2.15"},
		Topology: farm.Topology{
			Online: set(0, 1, 2, 3), Sockets: []farm.Socket{{ID: 0, CPUs: set(0, 1, 2, 3)}},
			Cores: []farm.Core{{Threads: set(0, 2)}, {Threads: set(1, 3)}}, L3: []farm.CPUSet{set(0, 1, 2, 3)},
			Nodes: []farm.Node{{ID: 0, CPUs: set(0, 1, 2, 3), Memory: 64 * farm.GiB, Free: 10 * farm.GiB}},
			CPU:   farm.CPUModel{Name: "Xeon"}},
		Domains: []farm.Domain{{Name: hostile, Running: true, VCPUs: 2,
			VCPUPins: map[int]farm.CPUSet{0: set(0), 1: set(2)}}, {Name: "b", VCPUs: 4}},
		Unread: []string{"/etc/libvirt/qemu: permission denied"},
	}
	fault := tuning.Rule{
		ID: "pages-wrong", Title: "pages are wrong & <b>small</b>", Severity: tuning.Fault, Holds: "all of *them*",
		Cost: "6 % of HS06 on two sockets",
		Sources: []tuning.Source{{Name: "CERN, a [text], 2015", URL: "https://example.org/a?b=c&d=e",
			Says: "it was 6 %"}, {Name: "a script", URL: "javascript:alert(3)", Says: "x"}},
		Why: strings.Repeat("Small pages make the processor walk long tables. ", 8), Fix: "take larger ones",
		Danger: "memory is taken at once", Undo: "give them back",
	}
	warning := fault
	warning.ID, warning.Title, warning.Severity, warning.Danger = "vm-odd", "VMs are odd", tuning.Warning, ""
	advice := fault
	advice.ID, advice.Title, advice.Severity = "small", "a small thing", tuning.Advice
	findings := []tuning.Finding{
		{Rule: "vm-odd", Severity: tuning.Warning, Where: "VM " + hostile, Wanted: "even", Got: "odd",
			Manual: "edit it"},
		{Rule: "vm-odd", Severity: tuning.Warning, Where: "VM b", Wanted: "even", Got: "odd", Manual: "edit it"},
		{Rule: "vm-odd", Severity: tuning.Advice, Where: "VM b disk vda", Wanted: "raw", Got: "qcow2",
			Manual: "edit it"},
	}
	return tuning.Report{Host: h, Role: tuning.Compute,
		Profile: tuning.Profile{Name: "generic-compute",
			Overheads: []tuning.Overhead{{VMs: 4, VCPUs: 8, Percent: 7.8, Source: "Tier-0"}}}, Results: []tuning.Result{
			{Rule: fault, Severity: tuning.Fault,
				Findings: []tuning.Finding{{Rule: "pages-wrong", Severity: tuning.Fault, Where: "node 0",
					Wanted: "28 pages", Got: "none",
					Changes: []tuning.Change{{Kind: tuning.SetValue, Path: "sys/kernel/mm/ksm/run", Value: "0"},
						{Kind: tuning.SetBoot, Name: "hugepages", Value: "28", Reboot: true}}}}},
			{Rule: warning, Severity: tuning.Warning, Findings: findings},
			{Rule: advice, Severity: tuning.Advice,
				Findings: []tuning.Finding{{Rule: "small", Severity: tuning.Advice, Where: "CPUs 1,3", Wanted: "a",
					Got: "b", Manual: "c"}}},
		},
		Skipped: []tuning.Skip{{Rule: tuning.Rule{ID: "guest-thing", Title: "for guests"},
			Reason: "does not hold for a host of role compute"}}, Applied: 40}
}

func rendered(t *testing.T, format string, r tuning.Report) string {
	t.Helper()
	var b bytes.Buffer
	var err error
	switch format {
	case "json":
		err = JSON(&b, r, about)
	case "sarif":
		err = SARIF(&b, r, about)
	case "html":
		err = HTML(&b, r, about)
	case "txt":
		err = Table(&b, r, about, Style{Width: 80})
	case "colour.txt":
		err = Table(&b, r, about, Style{Width: 60, Color: true})
	case "explain.txt":
		err = Explain(&b, r.Results[0].Rule, Style{Width: 72})
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGolden(t *testing.T) {
	for _, format := range []string{"json", "sarif", "html", "txt", "colour.txt", "explain.txt"} {
		t.Run(format, func(t *testing.T) {
			file, got := filepath.Join("testdata", "sample."+format), rendered(t, format, sample())
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("the report changed; -update writes it anew\n%s", d)
			}
		})
	}
}

// A name of a VM is text wherever it stands.
func TestHostileNamesAreText(t *testing.T) {
	page := rendered(t, "html", sample())
	for _, bad := range []string{"<script", "<b>small", "onload='", `href="javascript:`, "\x1b", "\u202e"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	for _, format := range []string{"txt", "explain.txt"} {
		if text := rendered(t, format, sample()); strings.ContainsAny(text, "\x1b\u202e") {
			t.Errorf("%s holds what moves a terminal's cursor", format)
		}
	}
	if text := rendered(t, "colour.txt", sample()); strings.Contains(text, "\x1b[2J") ||
		strings.Contains(text, "\u202e") {
		t.Error("a name clears the screen")
	}
}

var outside = regexp.MustCompile(`(?i)(\ssrc=|srcset|@import|url\(|<iframe|<object|<embed)`)

// The page loads nothing: links are for readers only.
func TestPageNeedsNothingElse(t *testing.T) {
	page := rendered(t, "html", sample())
	if found := outside.FindString(page); found != "" {
		t.Errorf("the page has %q", found)
	}
	if n := strings.Count(page, "<link"); n != 1 || !strings.Contains(page, `<link rel="icon" href="data:,">`) {
		t.Errorf("the page has %d links to other files", n)
	}
	for _, text := range []string{"21 November 2026, 04:30 UTC", "generic-compute", "node17",
		"does not hold for a host of role compute", "7.8 %", tuning.NotAdditive[:40],
		"write 0 to /sys/kernel/mm/ksm/run", "permission denied", "https://example.org/a?b=c&amp;d=e"} {
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %q", text)
		}
	}
}

func TestNothingFound(t *testing.T) {
	r := tuning.Report{Applied: 40, Role: tuning.Compute}
	if text := rendered(t, "txt", r); !strings.Contains(text, "nothing found by 40 rules") ||
		strings.Contains(text, "next:") {
		t.Errorf("%s", text)
	}
	if page := rendered(t, "html", r); !strings.Contains(page, "Nothing found by 40 rules") {
		t.Error("the page does not say so")
	}
	var a Audit
	if err := json.Unmarshal([]byte(rendered(t, "json", r)), &a); err != nil || a.Findings == nil || a.Skipped == nil ||
		a.Rules == nil || a.Unread == nil {
		t.Errorf("lists are not empty lists: %+v, %v", a, err)
	}
	checkSARIF(t, rendered(t, "sarif", r))
}

func TestTableFits(t *testing.T) {
	for _, width := range []int{40, 60, 80, 120} {
		var b bytes.Buffer
		if err := Table(&b, sample(), About{}, Style{Width: width}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width &&
				strings.Contains(strings.TrimSpace(line), " ") && !strings.Contains(line, "script") {
				t.Errorf("%d characters where %d fit: %s", n, width, line)
			}
		}
	}
}

func TestPlacesTogether(t *testing.T) {
	text := rendered(t, "txt", sample())
	if !strings.Contains(text, "VM b: odd → even") || strings.Count(text, "odd → even") != 1 {
		t.Errorf("findings with one text are not in one line:\n%s", text)
	}
}

func TestEveryRuleCanBeExplained(t *testing.T) {
	for _, r := range tuning.Rules() {
		var b bytes.Buffer
		if err := Explain(&b, r, Style{Width: 80}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{r.ID, "severity", "holds", "cost", "evidence", "fix", "danger", "undo"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("the explanation of %s lacks %s", r.ID, want)
			}
		}
	}
}

// The picture takes severities as they are.
func TestLevelsOfThePicture(t *testing.T) {
	for severity, level := range map[tuning.Severity]chart.Level{tuning.Advice: chart.Advice,
		tuning.Warning: chart.Warning, tuning.Fault: chart.Fault} {
		if chart.Level(severity) != level {
			t.Errorf("%v is level %d", severity, level)
		}
	}
}

func TestLocate(t *testing.T) {
	vms := []farm.Domain{{Name: "web"}, {Name: "web 2"}, {Name: "web3"}}
	for where, want := range map[string]string{
		"node 1": "node 1", "node 1: pages": "node 1", "node x": "", "CPUs 0-3,8": "CPUs 0-3,8", "CPU 3": "CPUs 3",
		"CPUs many": "", "host": "",
		"VM web": "VM web", "VM web 2, disk vda": "VM web 2", "VM web disk vda": "VM web", "VM web33": "",
		"service numad": "",
	} {
		var m chart.Mark
		got := ""
		if locate(&m, where, vms) {
			switch {
			case m.Node != nil:
				got = fmt.Sprintf("node %d", *m.Node)
			case m.VM != "":
				got = "VM " + m.VM
			default:
				got = "CPUs " + m.CPUs.String()
			}
		}
		if got != want {
			t.Errorf("%q is at %q, want %q", where, got, want)
		}
	}
}

// The guide names every key of the JSON.
func TestGuideNamesEveryKey(t *testing.T) {
	guide, err := os.ReadFile("../../../docs/guide/tuning.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []reflect.Type{reflect.TypeFor[Audit](), reflect.TypeFor[Host](), reflect.TypeFor[Counts](),
		reflect.TypeFor[Finding](), reflect.TypeFor[Change](), reflect.TypeFor[Rule](), reflect.TypeFor[Source](),
		reflect.TypeFor[Skip]()} {
		for field := range of.Fields() {
			key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if text := string(guide); !strings.Contains(text, "`"+key+"`") && !strings.Contains(text, "`"+key+"[]`") &&
				!strings.Contains(text, "."+key+"[]`") {
				t.Errorf("docs/guide/tuning.md does not name %s of %s", key, of.Name())
			}
		}
	}
}

// TestLines has a line for each place, with the priority by which `journalctl -p` finds it, and none that a host's
// names could add.
func TestLines(t *testing.T) {
	r := sample()
	r.Results[0].Findings[0].Where = "VM x\n<0>y"
	var b bytes.Buffer
	if err := Lines(&b, r); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	want := 1 // the summary
	for _, result := range r.Results {
		want += len(places(result.Findings))
	}
	if len(lines) != want {
		t.Errorf("%d lines, want %d:\n%s", len(lines), want, b.String())
	}
	for _, line := range lines {
		if !regexp.MustCompile(`^(<3>FAULT|<4>WARNING|<5>ADVICE|<6>\d+) `).MatchString(line) {
			t.Errorf("line %q", line)
		}
	}
}
