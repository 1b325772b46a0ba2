package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/tuning"
)

// The parts of SARIF 2.1.0 (OASIS Standard, 27 March 2020) that are used. Names are those of the standard.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool        sarifTool         `json:"tool"`
		Invocations []sarifInvocation `json:"invocations"`
		Results     []sarifResult     `json:"results"`
		ColumnKind  string            `json:"columnKind"`
		Properties  map[string]any    `json:"properties"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version,omitempty"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID      string         `json:"id"`
		Short   sarifText      `json:"shortDescription"`
		Full    sarifText      `json:"fullDescription"`
		Help    sarifText      `json:"help"`
		Default sarifConfig    `json:"defaultConfiguration"`
		HelpURI string         `json:"helpUri,omitempty"`
		Extra   map[string]any `json:"properties"`
	}
	sarifConfig struct {
		Level string `json:"level"`
	}
	sarifText struct {
		Text     string `json:"text"`
		Markdown string `json:"markdown,omitempty"`
	}
	sarifInvocation struct {
		ExecutionSuccessful bool   `json:"executionSuccessful"`
		EndTime             string `json:"endTimeUtc,omitempty"`
	}
	sarifResult struct {
		RuleID      string            `json:"ruleId"`
		RuleIndex   int               `json:"ruleIndex"`
		Level       string            `json:"level"`
		Message     sarifText         `json:"message"`
		Locations   []sarifLocation   `json:"locations"`
		Fingerprint map[string]string `json:"partialFingerprints"`
	}
	sarifLocation struct {
		Logical []sarifLogical `json:"logicalLocations"`
	}
	sarifLogical struct {
		Name     string `json:"name"`
		FullName string `json:"fullyQualifiedName"`
		Kind     string `json:"kind"`
	}
)

const sarifSchema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

var sarifLevels = map[tuning.Severity]string{tuning.Fault: "error", tuning.Warning: "warning", tuning.Advice: "note"}

// SARIF writes a report in the Static Analysis Results Interchange Format 2.1.0, which dashboards read. A place on
// a host is a logical location; there is no source line to point at.
func SARIF(w io.Writer, r tuning.Report, about About) error {
	run := sarifRun{
		Tool:        sarifTool{sarifDriver{Name: "grange", Version: about.Version, Rules: []sarifRule{}}},
		Invocations: []sarifInvocation{{ExecutionSuccessful: true, EndTime: about.Date.UTC().Format(time.RFC3339)}},
		Results:     []sarifResult{}, ColumnKind: "utf16CodeUnits",
		Properties: map[string]any{"host": r.Host.Name, "role": string(r.Role), "profile": r.Profile.Name,
			"note": tuning.NotAdditive},
	}
	for i, result := range r.Results {
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRuleOf(result.Rule))
		for _, f := range result.Findings {
			run.Results = append(run.Results, sarifResultOf(r.Host.Name, i, f))
		}
	}
	return encode(w, sarifLog{Schema: sarifSchema, Version: "2.1.0", Runs: []sarifRun{run}})
}

func sarifRuleOf(r tuning.Rule) sarifRule {
	out := sarifRule{ID: r.ID, Short: sarifText{Text: r.Title}, Full: sarifText{Text: r.Why}, Help: sarifHelp(r),
		Default: sarifConfig{sarifLevels[r.Severity]},
		Extra:   map[string]any{"cost": r.Cost, "holds": r.Holds, "tags": []string{"tuning"}}}
	for _, s := range r.Sources {
		if s.URL != "" {
			out.HelpURI = s.URL
			break
		}
	}
	return out
}

// sarifHelp is a rule's text. The standard wants plain text wherever there is Markdown.
func sarifHelp(r tuning.Rule) sarifText {
	var text, markdown strings.Builder
	add := func(label, value string) {
		if value != "" {
			fmt.Fprintf(&text, "%s: %s\n", label, value)
			fmt.Fprintf(&markdown, "**%s**: %s\n\n", label, plain(value))
		}
	}
	add("Cost", r.Cost)
	add("Holds for", r.Holds)
	add("Fix", r.Fix)
	add("Danger", r.Danger)
	add("Undo", r.Undo)
	for _, s := range r.Sources {
		name := plain(s.Name)
		if s.URL != "" {
			name = fmt.Sprintf("[%s](%s)", name, s.URL)
		}
		fmt.Fprintf(&text, "Evidence: %s: %s %s\n", s.Name, s.Says, s.URL)
		fmt.Fprintf(&markdown, "**Evidence**: %s: %s\n\n", name, plain(s.Says))
	}
	return sarifText{strings.TrimSpace(text.String()), strings.TrimSpace(markdown.String())}
}

// plain keeps text from being read as Markdown.
func plain(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `_`, `\_`, "`", "\\`", `[`, `\[`, `]`, `\]`, `<`, `\<`, `#`,
		`\#`).Replace(s)
}

func sarifResultOf(host string, rule int, f tuning.Finding) sarifResult {
	message := fmt.Sprintf("%s: %s, wanted %s.", f.Where, f.Got, f.Wanted)
	for _, c := range f.Changes {
		message += " To do: " + ChangeText(c) + "."
	}
	if f.Manual != "" {
		message += " By hand: " + strings.TrimSuffix(f.Manual, ".") + "."
	}
	if host == "" {
		host = "host"
	}
	return sarifResult{
		RuleID: f.Rule, RuleIndex: rule, Level: sarifLevels[f.Severity], Message: sarifText{Text: message},
		Locations: []sarifLocation{{[]sarifLogical{{Name: f.Where, FullName: host + "/" + f.Where,
			Kind: "resource"}}}},
		Fingerprint: map[string]string{"place/v1": host + "/" + f.Rule + "/" + f.Where},
	}
}
