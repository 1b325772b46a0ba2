package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
)

// Sample is one metric of Prometheus, as docs/reference/metrics.md lists it.
type Sample struct {
	Name   string
	Labels []string
	Help   string
}

// Of an audit. All are gauges: the file is what the last audit found.
var (
	findingsOf = Sample{"grange_tune_findings", []string{"severity"},
		"Findings of the last audit by severity: fault, warning, advice."}
	findingsOfRule = Sample{"grange_tune_rule_findings", []string{"rule", "severity"},
		"Findings of the last audit by rule, of those rules that found any."}
	rulesAsked = Sample{"grange_tune_rules", nil, "Rules that the last audit asked."}
	auditedAt  = Sample{"grange_tune_audit_timestamp_seconds", nil, "When the last audit was made."}
)

// Samples are all that an audit exports.
func Samples() []Sample { return []Sample{findingsOf, findingsOfRule, rulesAsked, auditedAt} }

var severities = []tuning.Severity{tuning.Fault, tuning.Warning, tuning.Advice}

// Prometheus writes an audit in Prometheus' text form, for the textfile collector of node_exporter. Its labels are
// rules and severities: names of this program, which need no quoting.
func Prometheus(w io.Writer, r tuning.Report, about About) error {
	p := &printer{w: w}
	head := func(s Sample) {
		p.line("# HELP " + s.Name + " " + s.Help)
		p.line("# TYPE " + s.Name + " gauge")
	}
	head(findingsOf)
	for _, s := range severities {
		p.line(fmt.Sprintf("%s{severity=%q} %d", findingsOf.Name, s, r.Count(s)))
	}
	head(findingsOfRule)
	for _, result := range r.Results {
		for _, s := range severities {
			if n := countOf(result.Findings, s); n > 0 {
				p.line(fmt.Sprintf("%s{rule=%q,severity=%q} %d", findingsOfRule.Name, result.Rule.ID, s, n))
			}
		}
	}
	head(rulesAsked)
	p.line(fmt.Sprintf("%s %d", rulesAsked.Name, r.Applied))
	head(auditedAt)
	p.line(fmt.Sprintf("%s %d", auditedAt.Name, about.Date.Unix()))
	return p.err
}

func countOf(findings []tuning.Finding, s tuning.Severity) (n int) {
	for _, f := range findings {
		if f.Severity == s {
			n++
		}
	}
	return n
}

// NagiosStatus is the exit status of a plug-in: 0 is OK, 1 WARNING, 2 CRITICAL; advice is OK. See NagiosUnknown.
func NagiosStatus(r tuning.Report) int {
	switch r.Worst() {
	case tuning.Fault:
		return 2
	case tuning.Warning:
		return 1
	}
	return 0
}

// NagiosUnknown is the status of a check that was not made.
const NagiosUnknown = 3

// mostOfRules bounds the lines of a plug-in: monitors cut them at 4 KiB.
const mostOfRules = 20

// Nagios writes an audit as a plug-in of Nagios and its kin does: a line with figures behind a bar, and a line for each
// rule that found a fault or a warning.
func Nagios(w io.Writer, r tuning.Report) error {
	p := &printer{w: w}
	word := []string{"OK", "WARNING", "CRITICAL"}[NagiosStatus(r)]
	p.line(fmt.Sprintf("TUNING %s - %s | faults=%d;;0;0 warnings=%d;0;;0 advice=%d;;;0", word, unbarred(Summary(r)),
		r.Count(tuning.Fault), r.Count(tuning.Warning), r.Count(tuning.Advice)))
	lines := 0
	for _, result := range r.Results {
		if !slices.Contains([]tuning.Severity{tuning.Fault, tuning.Warning}, result.Severity) {
			continue
		}
		if lines++; lines > mostOfRules {
			p.line("and more: grange tune audit")
			break
		}
		p.line(unbarred(fmt.Sprintf("%s %s: %s", strings.ToUpper(result.Severity.String()), result.Rule.ID,
			result.Rule.Title)))
	}
	return p.err
}

// NagiosFailed writes that a check was not made.
func NagiosFailed(w io.Writer, why error) error {
	p := &printer{w: w}
	line, _, _ := strings.Cut(why.Error(), "\n")
	p.line("TUNING UNKNOWN - " + unbarred(line))
	return p.err
}

// unbarred is a text in which a monitor finds no figures, and a terminal no commands.
func unbarred(text string) string { return strings.ReplaceAll(farm.Printable(text), "|", "/") }
