package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
)

// Style is what the reader's terminal can do.
type Style struct {
	Width int  // columns; 0 means 100
	Color bool // ANSI colours
}

const (
	labelWidth  = 10
	mostPlaces  = 12 // named of one text; the JSON has all
	mostSources = 2
)

func (s Style) width() int { return tuning.TextWidth(s.Width) }

// Colours by severity. 1 is bold.
var colors = map[tuning.Severity]string{tuning.Fault: "1;31", tuning.Warning: "1;33", tuning.Advice: "1;36"}

func (s Style) paint(code, text string) string {
	if !s.Color || code == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// printer writes paragraphs with a label at the left, and remembers the first error.
type printer struct {
	w     io.Writer
	style Style
	err   error
}

func (p *printer) line(text string) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.w, text)
	}
}

// text wraps a paragraph.
func (p *printer) text(text string) {
	for _, line := range wrap(farm.Printable(text), p.style.width()) {
		p.line(line)
	}
}

// labelled wraps text beside a label.
func (p *printer) labelled(label, text string) {
	if text == "" {
		return
	}
	for i, line := range wrap(farm.Printable(text), p.style.width()-labelWidth-2) {
		if i > 0 {
			label = ""
		}
		p.line("  " + p.style.paint("2", fmt.Sprintf("%-*s", labelWidth, label)) + line)
	}
}

// Table writes a report for people: by severity, rule by rule, what is, what is wanted, what it costs and who says so.
func Table(w io.Writer, r tuning.Report, about About, style Style) error {
	p := &printer{w: w, style: style}
	p.text(fmt.Sprintf("%s as %s, profile %s", hostName(r.Host), r.Role, r.Profile.Name))
	p.text(hardware(r.Host))
	if s := software(r.Host); s != "" {
		p.text(s)
	}
	if r.Sparse() {
		p.note(tuning.SparseNote)
	}
	for _, result := range r.Results {
		p.line("")
		p.result(result)
	}
	p.end(r, about)
	return p.err
}

func (p *printer) result(result tuning.Result) {
	severity := strings.ToUpper(result.Severity.String())
	head := wrap(farm.Printable(result.Rule.Title), p.style.width()-2-len(severity)-1-len(result.Rule.ID)-2)
	p.line(p.style.paint(colors[result.Severity], severity) + "  " + p.style.paint("1", result.Rule.ID) +
		"  " + head[0])
	for _, more := range head[1:] {
		p.line(strings.Repeat(" ", len(severity)+len(result.Rule.ID)+4) + more)
	}
	for _, place := range places(result.Findings) {
		where := place.where
		if more := len(where) - mostPlaces; more > 0 {
			where = append(where[:mostPlaces:mostPlaces], fmt.Sprintf("and %d more", more))
		}
		label := "where"
		if s := place.finding.Severity; s != result.Severity {
			label = s.String()
		}
		p.labelled(label, strings.Join(where, ", ")+": "+place.finding.Got+" → "+place.finding.Wanted)
	}
	p.labelled("cost", result.Rule.Cost)
	p.labelled("evidence", evidence(result.Rule.Sources))
}

// evidence names the first sources; `grange tune explain` has all of them, and what they say.
func evidence(sources []tuning.Source) string {
	var names []string
	for _, s := range sources[:min(len(sources), mostSources)] {
		names = append(names, s.Name)
	}
	if more := len(sources) - mostSources; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, "; ")
}

// note is for what a reader must not miss.
func (p *printer) note(text string) {
	const label = "NOTE"
	lines := wrap(text, p.style.width()-len(label)-2)
	p.line(p.style.paint(colors[tuning.Warning], label) + "  " + lines[0])
	for _, more := range lines[1:] {
		p.line(strings.Repeat(" ", len(label)+2) + more)
	}
}

func (p *printer) end(r tuning.Report, about About) {
	p.line("")
	for _, line := range wrap(Summary(r), p.style.width()) {
		p.line(p.style.paint("1", line))
	}
	if len(r.Results) > 0 {
		p.text(tuning.NotAdditive)
	}
	if n := len(r.Host.Unread); n > 0 {
		p.text(fmt.Sprintf("%s could not be read, so something may be missing here; root can read all:",
			counted(n, "file", "files")))
		for _, u := range r.Host.Unread[:min(n, 5)] {
			p.text("  " + u)
		}
		if n > 5 {
			p.text(fmt.Sprintf("  and %d more", n-5))
		}
	}
	if len(r.Results) > 0 {
		p.line("next:") // whole lines: they are there to be pasted
		p.line("  grange tune explain " + r.Results[0].Rule.ID)
		p.line("  grange tune plan" + farm.Printable(about.Chosen))
	}
}

// Rules writes the list of rules for people.
func Rules(w io.Writer, rules []tuning.Rule, style Style) error {
	p := &printer{w: w, style: style}
	id, severity := 2, len("SEVERITY")
	for _, r := range rules {
		id = max(id, len(r.ID))
	}
	p.line(fmt.Sprintf("%-*s  %-*s  %s", id, "ID", severity, "SEVERITY", "TITLE"))
	for _, r := range rules {
		for i, line := range wrap(r.Title, max(20, p.style.width()-id-severity-4)) {
			if i == 0 {
				p.line(fmt.Sprintf("%-*s  %s  %s", id, r.ID,
					p.style.paint(colors[r.Severity], fmt.Sprintf("%-*v", severity, r.Severity)), line))
			} else {
				p.line(strings.Repeat(" ", id+severity+4) + line)
			}
		}
	}
	p.line("")
	p.text("Each severity is the worst that the rule can find; `grange tune explain RULE` shows more.")
	return p.err
}

// Explain writes all that a rule says.
func Explain(w io.Writer, r tuning.Rule, style Style) error {
	p := &printer{w: w, style: style}
	p.text(r.ID + ": " + r.Title)
	p.line("")
	p.text(r.Why)
	p.line("")
	p.labelled("severity", r.Severity.String()+" at worst, for "+strings.Join(RuleOf(r).Roles, ", ")+" hosts")
	p.labelled("holds", r.Holds)
	p.labelled("cost", r.Cost)
	for _, s := range r.Sources {
		p.labelled("evidence", s.Name+": "+s.Says)
		p.labelled("", s.URL)
	}
	p.labelled("fix", r.Fix)
	danger := r.Danger
	if danger == "" {
		danger = "none known"
	}
	p.labelled("danger", danger)
	p.labelled("undo", r.Undo)
	return p.err
}

func wrap(text string, width int) []string { return tuning.Wrap(text, width, width) }
