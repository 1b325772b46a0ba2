package report_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/selftest/report"
	"github.com/grange-project/grange/internal/selftest/verdict"
)

const secret = "node17.example.org"

func filled(site bool) report.Report {
	r := report.Report{Schema: report.Schema, Version: "1.0", Date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Host: report.Host{Processor: "EPYC <7>", Sockets: 2, Nodes: 2, Cores: 4, CPUs: 8, Memory: 6 << 30}}
	if site {
		r.Site = &report.Site{Name: secret}
	}
	r.Add(verdict.Checks[0], verdict.Finding{Verdict: verdict.Good, Reason: "fine",
		Figures: map[string]float64{"answer_ms": 12.5}}, time.Second)
	r.Add(verdict.Checks[1], verdict.Finding{Verdict: verdict.Bad, Reason: "bad <b>\x1b[31m", Remedy: "mend it",
		Details: []string{"of " + secret}}, 1500*time.Millisecond)
	r.Add(verdict.Checks[2], verdict.Finding{Verdict: verdict.NotApplicable, Reason: "none"}, 0)
	return r
}

func all(t *testing.T, r report.Report) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, write := range map[string]func(*bytes.Buffer) error{
		"text": func(b *bytes.Buffer) error { return report.Text(b, r) },
		"JSON": func(b *bytes.Buffer) error { return report.JSON(b, r) },
		"HTML": func(b *bytes.Buffer) error { return report.HTML(b, r) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		out[name] = b.String()
	}
	return out
}

// TestSite: what names the site is in a report that was asked for it, and in no other.
func TestSite(t *testing.T) {
	for name, text := range all(t, filled(false)) {
		if strings.Contains(text, secret) {
			t.Errorf("%s names the site:\n%s", name, text)
		}
		if !strings.Contains(text, "mend it") || strings.Contains(text, "\x1b") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
	for name, text := range all(t, filled(true)) {
		if !strings.Contains(text, secret) {
			t.Errorf("%s does not name the site", name)
		}
	}
}

// TestPage: it needs nothing else, and what was measured is text in it.
func TestPage(t *testing.T) {
	page := all(t, filled(true))["HTML"]
	for _, no := range []string{"<script", "http:", "https:", "src=", "@import", "<b>", "<7>"} {
		if strings.Contains(page, no) {
			t.Errorf("the page has %q", no)
		}
	}
	if !strings.Contains(page, "@media print") || !strings.Contains(page, "answer ms 12.50") {
		t.Error(page)
	}
}

// TestSchema holds the names of the JSON's fields: others read them.
func TestSchema(t *testing.T) {
	var got map[string]any
	if err := json.Unmarshal([]byte(all(t, filled(false))["JSON"]), &got); err != nil {
		t.Fatal(err)
	}
	has := func(m map[string]any, names ...string) {
		for _, n := range names {
			if _, ok := m[n]; !ok {
				t.Errorf("no %q in %v", n, m)
			}
		}
	}
	has(got, "schema", "version", "date", "verdict", "counts", "host", "checks")
	has(got["counts"].(map[string]any), "good", "warning", "bad", "not_applicable")
	has(got["host"].(map[string]any), "processor", "sockets", "nodes", "cores", "cpus", "memory", "os", "kernel",
		"accelerator", "virtual_machine")
	has(got["checks"].([]any)[0].(map[string]any), "name", "title", "verdict", "reason", "seconds", "figures")
	if got["verdict"] != "bad" || got["schema"] != 1.0 || got["site"] != nil {
		t.Errorf("%v", got)
	}
}
