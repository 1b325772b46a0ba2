package report

import (
	_ "embed"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/chart"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
)

//go:embed page.html
var pageText string

// HTML writes a report as one page that needs nothing else: no script, no font, no picture from anywhere.
func HTML(w io.Writer, r tuning.Report, about About) error {
	t, err := template.New("page").Funcs(template.FuncMap{"change": ChangeText, "percent": percent}).Parse(pageText)
	if err != nil {
		return err
	}
	return t.Execute(w, pageOf(r, about))
}

// page is what the template shows.
type page struct {
	Name, Hardware, Software string
	Report                   tuning.Report
	About                    About
	Note, Sparse             string
	Picture                  template.HTML
	Counts                   []countBox
	Severities               []severityPart
	VMs                      int
}

type countBox struct {
	Class, Label string
	N            int
}

// severityPart is the rules of one severity.
type severityPart struct {
	Class, Title string
	Rules        []rulePart
}

type rulePart struct {
	Rule   tuning.Rule
	Class  string
	Places []placePart
	Open   bool // what is folded away of others
}

type placePart struct {
	Where   string
	Finding tuning.Finding
}

func pageOf(r tuning.Report, about About) page {
	p := page{Name: hostName(r.Host), Hardware: hardware(r.Host), Software: software(r.Host), Report: r, About: about,
		Note: tuning.NotAdditive, VMs: len(r.Host.Domains),
		// The picture escapes all text it is given, and its tests hold it to that.
		Picture: template.HTML(chart.Host(r.Host, marks(r)))}
	if r.Sparse() {
		p.Sparse = tuning.SparseNote
	}
	for _, s := range []struct {
		severity tuning.Severity
		title    string
	}{{tuning.Fault, "Faults"}, {tuning.Warning, "Warnings"}, {tuning.Advice, "Advice"}} {
		label, n := strings.ToLower(s.title), r.Count(s.severity)
		if n == 1 {
			label = s.severity.String()
		}
		p.Counts = append(p.Counts, countBox{s.severity.String(), label, n})
		part := severityPart{Class: s.severity.String(), Title: s.title}
		for _, result := range r.Results {
			if result.Severity == s.severity {
				part.Rules = append(part.Rules, rulePartOf(result))
			}
		}
		if len(part.Rules) > 0 {
			p.Severities = append(p.Severities, part)
		}
	}
	return p
}

func rulePartOf(result tuning.Result) rulePart {
	out := rulePart{Rule: result.Rule, Class: result.Severity.String(), Open: result.Severity == tuning.Fault}
	for _, place := range places(result.Findings) {
		f := place.finding
		f.Got, f.Wanted, f.Manual = farm.Printable(f.Got), farm.Printable(f.Wanted), farm.Printable(f.Manual)
		out.Places = append(out.Places, placePart{farm.Printable(strings.Join(place.where, ", ")), f})
	}
	return out
}

func percent(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) + " %" }

// marks are the places of findings that a picture of the host can show.
func marks(r tuning.Report) []chart.Mark {
	var out []chart.Mark
	for _, f := range r.Findings() {
		m := chart.Mark{Level: chart.Level(f.Severity), Text: f.Rule + ": " + f.Got}
		if locate(&m, f.Where, r.Host.Domains) {
			out = append(out, m)
		}
	}
	return out
}

// locate reads where a finding is: "node 1", "CPUs 0-7", "VM web3", with more words after it or without.
func locate(m *chart.Mark, where string, vms []farm.Domain) bool {
	kind, rest, _ := strings.Cut(where, " ")
	first, _, _ := strings.Cut(rest, " ")
	switch kind {
	case "node":
		id, err := strconv.Atoi(strings.TrimRight(first, ",:"))
		m.Node = &id
		return err == nil
	case "CPU", "CPUs":
		set, err := farm.ParseCPUSet(strings.TrimRight(first, ",:"))
		m.CPUs = set
		return err == nil && !set.Empty()
	case "VM":
		m.VM = longestName(rest, vms)
		return m.VM != ""
	}
	return false
}

// longestName is the VM whose name the text is, or begins with.
func longestName(text string, vms []farm.Domain) string {
	var names []string
	for _, d := range vms {
		after, ok := strings.CutPrefix(text, d.Name)
		if ok && (after == "" || strings.ContainsAny(after[:1], " ,:")) {
			names = append(names, d.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return slices.MaxFunc(names, func(a, b string) int { return len(a) - len(b) })
}
