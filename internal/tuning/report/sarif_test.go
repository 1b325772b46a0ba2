package report

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/tuning"
)

func TestSARIF(t *testing.T) {
	results := checkSARIF(t, rendered(t, "sarif", sample()))
	if len(results) != len(sample().Findings()) {
		t.Errorf("%d results of %d findings", len(results), len(sample().Findings()))
	}
	var levels []string
	for _, r := range results {
		levels = append(levels, r["level"].(string))
	}
	if want := []string{"error", "warning", "warning", "note", "note"}; !slices.Equal(levels, want) {
		t.Errorf("levels %v, want %v", levels, want)
	}
}

// All rules of the auditor make a valid log.
func TestSARIFOfAllRules(t *testing.T) {
	var r tuning.Report
	for _, rule := range tuning.Rules() {
		r.Results = append(r.Results, tuning.Result{Rule: rule, Severity: rule.Severity,
			Findings: []tuning.Finding{{Rule: rule.ID, Severity: rule.Severity, Where: "host", Wanted: "a", Got: "b"}}})
	}
	checkSARIF(t, rendered(t, "sarif", r))
}

// checkSARIF holds a log to what the schema of SARIF 2.1.0 requires of the parts that are used, and to what the
// standard says beyond it: indices and IDs that agree, text wherever there is Markdown.
func checkSARIF(t *testing.T, text string) []map[string]any {
	t.Helper()
	var log map[string]any
	if err := json.Unmarshal([]byte(text), &log); err != nil {
		t.Fatal(err)
	}
	only(t, "log", log, "$schema", "version", "runs")
	if log["version"] != "2.1.0" {
		t.Errorf("version %v", log["version"])
	}
	runs := log["runs"].([]any)
	if len(runs) != 1 {
		t.Fatalf("%d runs", len(runs))
	}
	run := runs[0].(map[string]any)
	only(t, "run", run, "tool", "invocations", "results", "columnKind", "properties")
	if kind := run["columnKind"]; kind != "utf16CodeUnits" && kind != "unicodeCodePoints" {
		t.Errorf("columnKind %v", kind)
	}
	for _, i := range run["invocations"].([]any) {
		if _, ok := i.(map[string]any)["executionSuccessful"].(bool); !ok {
			t.Error("an invocation does not say executionSuccessful, which is required")
		}
		if end := i.(map[string]any)["endTimeUtc"].(string); !strings.HasSuffix(end, "Z") {
			t.Errorf("endTimeUtc %q", end)
		} else if _, err := time.Parse(time.RFC3339, end); err != nil {
			t.Error(err)
		}
	}
	driver := run["tool"].(map[string]any)["driver"].(map[string]any)
	only(t, "driver", driver, "name", "version", "rules")
	if driver["name"] == "" {
		t.Error("the driver has no name, which is required")
	}
	ids := checkSARIFRules(t, driver["rules"].([]any))
	var results []map[string]any
	for _, v := range run["results"].([]any) {
		result := v.(map[string]any)
		checkSARIFResult(t, result, ids)
		results = append(results, result)
	}
	return results
}

func checkSARIFRules(t *testing.T, rules []any) []string {
	t.Helper()
	var ids []string
	for _, v := range rules {
		rule := v.(map[string]any)
		only(t, "rule", rule, "id", "shortDescription", "fullDescription", "help", "helpUri", "defaultConfiguration",
			"properties")
		id := rule["id"].(string)
		if id == "" || slices.Contains(ids, id) {
			t.Errorf("rule ID %q is empty or there twice", id)
		}
		ids = append(ids, id)
		for _, key := range []string{"shortDescription", "fullDescription", "help"} {
			message := rule[key].(map[string]any)
			only(t, key, message, "text", "markdown")
			if text, _ := message["text"].(string); text == "" {
				t.Errorf("%s of %s has no text, which is required", key, id)
			}
		}
		if uri, ok := rule["helpUri"].(string); ok && !strings.Contains(uri, ":") {
			t.Errorf("helpUri %q of %s is not absolute", uri, id)
		}
		level(t, rule["defaultConfiguration"].(map[string]any)["level"])
	}
	return ids
}

func checkSARIFResult(t *testing.T, result map[string]any, ids []string) {
	t.Helper()
	only(t, "result", result, "ruleId", "ruleIndex", "level", "message", "locations", "partialFingerprints")
	index := int(result["ruleIndex"].(float64))
	if index < 0 || index >= len(ids) || ids[index] != result["ruleId"] {
		t.Errorf("rule %v is not the one at index %d", result["ruleId"], index)
	}
	level(t, result["level"])
	if text, _ := result["message"].(map[string]any)["text"].(string); text == "" {
		t.Error("a result has no message")
	}
	for _, l := range result["locations"].([]any) {
		for _, v := range l.(map[string]any)["logicalLocations"].([]any) {
			place := v.(map[string]any)
			only(t, "logicalLocation", place, "name", "fullyQualifiedName", "kind")
			if place["name"] == "" || place["fullyQualifiedName"] == "" {
				t.Error("a location has no name")
			}
		}
	}
	for key, v := range result["partialFingerprints"].(map[string]any) {
		if s, ok := v.(string); !ok || s == "" || key == "" {
			t.Errorf("fingerprint %s is %v, which is no text", key, v)
		}
	}
}

func level(t *testing.T, v any) {
	t.Helper()
	if s, _ := v.(string); !slices.Contains([]string{"none", "note", "warning", "error"}, s) {
		t.Errorf("level %v is none of the standard", v)
	}
}

// only complains of keys that the schema, which allows no others, does not have.
func only(t *testing.T, what string, object map[string]any, keys ...string) {
	t.Helper()
	for key := range object {
		if !slices.Contains(keys, key) {
			t.Errorf("%s has the key %q", what, key)
		}
	}
}
