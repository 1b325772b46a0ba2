// Package report shows what a self test found: as lines, as JSON, and as a page for a browser or for paper.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/selftest/verdict"
)

// Schema is the number of the form of the JSON. Fields are only ever added; a changed meaning gets a new number.
const Schema = 1

// Report is all that a self test found. Without Site nothing in it names the site.
type Report struct {
	Schema  int             `json:"schema"`
	Version string          `json:"version"`
	Date    time.Time       `json:"date"`
	Verdict verdict.Verdict `json:"verdict"` // the worst of all
	Counts  Counts          `json:"counts"`
	Host    Host            `json:"host"`
	Checks  []Result        `json:"checks"`
	Site    *Site           `json:"site,omitempty"` // only where it was asked for
}

// Counts are how many checks went how.
type Counts struct {
	Good          int `json:"good"`
	Warning       int `json:"warning"`
	Bad           int `json:"bad"`
	NotApplicable int `json:"not_applicable"`
}

// Host is what the host is made of.
type Host struct {
	Processor      string `json:"processor"`
	Sockets        int    `json:"sockets"`
	Nodes          int    `json:"nodes"`
	Cores          int    `json:"cores"`
	CPUs           int    `json:"cpus"`
	Memory         uint64 `json:"memory"` // bytes
	OS             string `json:"os"`
	Kernel         string `json:"kernel"`
	QEMU           string `json:"qemu,omitempty"`
	Libvirt        string `json:"libvirt,omitempty"`
	Accelerator    string `json:"accelerator"`
	VirtualMachine bool   `json:"virtual_machine"`
}

// Site is what names it.
type Site struct {
	Name string `json:"name"`
}

// Result is one check with what it found.
type Result struct {
	Name    string             `json:"name"`
	Title   string             `json:"title"`
	Verdict verdict.Verdict    `json:"verdict"`
	Reason  string             `json:"reason"`
	Remedy  string             `json:"remedy,omitempty"`
	Seconds float64            `json:"seconds"`
	Figures map[string]float64 `json:"figures,omitempty"`
	Details []string           `json:"details,omitempty"` // raw messages and names; only with Site
}

// Add adds what a check found. Details may name the site, and are left out of reports that must not.
func (r *Report) Add(c verdict.Check, f verdict.Finding, took time.Duration) {
	result := Result{Name: c.Name, Title: c.Title, Verdict: f.Verdict, Reason: farm.Printable(f.Reason),
		Remedy: f.Remedy, Seconds: float64(took.Milliseconds()) / 1000, Figures: f.Figures}
	if r.Site != nil {
		for _, d := range f.Details {
			result.Details = append(result.Details, farm.Printable(d))
		}
	}
	r.Checks = append(r.Checks, result)
	switch f.Verdict {
	case verdict.Good:
		r.Counts.Good++
	case verdict.Warning:
		r.Counts.Warning++
	case verdict.Bad:
		r.Counts.Bad++
	default:
		r.Counts.NotApplicable++
	}
	r.Verdict = r.worst()
}

func (r *Report) worst() verdict.Verdict {
	switch {
	case r.Counts.Bad > 0:
		return verdict.Bad
	case r.Counts.Warning > 0:
		return verdict.Warning
	case r.Counts.Good > 0:
		return verdict.Good
	}
	return verdict.NotApplicable
}

// JSON writes the report as its schema has it.
func JSON(w io.Writer, r Report) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Text writes a line for each check, with what to do below those that are not good.
func Text(w io.Writer, r Report) error {
	var b strings.Builder
	for _, c := range r.Checks {
		fmt.Fprintf(&b, "%-9s %-12s %s\n", words(c.Verdict), c.Name, c.Reason)
		if c.Remedy != "" {
			fmt.Fprintf(&b, "%23stry: %s\n", "", c.Remedy)
		}
		for _, d := range c.Details {
			fmt.Fprintf(&b, "%23s%s\n", "", d)
		}
	}
	fmt.Fprintln(&b, r.Summary())
	_, err := io.WriteString(w, b.String())
	return err
}

// Summary is one line.
func (r Report) Summary() string {
	c := r.Counts
	return fmt.Sprintf("%d good, %d warnings, %d bad, %d not applicable", c.Good, c.Warning, c.Bad, c.NotApplicable)
}

// words are a verdict for people.
func words(v verdict.Verdict) string {
	switch v {
	case verdict.Bad:
		return "BAD"
	case verdict.NotApplicable:
		return "n/a"
	}
	return string(v)
}

// figure is one of a check's, for people.
type figure struct{ Name, Value string }

func figures(of map[string]float64) []figure {
	var out []figure
	for _, name := range slices.Sorted(maps.Keys(of)) {
		value := fmt.Sprintf("%.2f", of[name])
		out = append(out, figure{strings.ReplaceAll(name, "_", " "), strings.TrimSuffix(value, ".00")})
	}
	return out
}
