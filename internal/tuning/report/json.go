package report

import (
	"encoding/json"
	"io"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
)

// About is what a report says of itself.
type About struct {
	Source  string    // "this host", or the recording
	Date    time.Time // of the audit
	Version string    // of grange
	// flags by which host, profile and rules were chosen, as a shell takes them: " --from node17.tar --role guest"
	Chosen string
}

// Audit is the JSON form of a report. docs/guide/tuning.md explains the keys; they are only added to.
type Audit struct {
	Date     time.Time `json:"date"`
	Version  string    `json:"version"`
	Source   string    `json:"source"`
	Host     Host      `json:"host"`
	Role     string    `json:"role"`
	Profile  string    `json:"profile"`
	Counts   Counts    `json:"counts"`
	Findings []Finding `json:"findings"`
	Rules    []Rule    `json:"rules"` // of the findings
	Asked    int       `json:"rules_asked"`
	Skipped  []Skip    `json:"rules_skipped"`
	Unread   []string  `json:"unread"`
	Sparse   bool      `json:"sparse"`
	Note     string    `json:"note"`
}

// Host is what identifies the audited host.
type Host struct {
	Name    string `json:"name"`
	Virtual bool   `json:"virtual"`
	CPU     string `json:"cpu"`
	Sockets int    `json:"sockets"`
	Nodes   int    `json:"nodes"`
	Cores   int    `json:"cores"`
	Threads int    `json:"threads"`
	Memory  uint64 `json:"memory"` // bytes
	OS      string `json:"os"`
	Kernel  string `json:"kernel"`
	QEMU    string `json:"qemu"`
	Libvirt string `json:"libvirt"`
	VMs     int    `json:"vms"`
}

// Counts are findings by severity.
type Counts struct {
	Fault   int `json:"fault"`
	Warning int `json:"warning"`
	Advice  int `json:"advice"`
}

// Finding is one place where the host differs from what a rule wants.
type Finding struct {
	Rule     string   `json:"rule"`
	Severity string   `json:"severity"`
	Where    string   `json:"where"`
	Got      string   `json:"got"`
	Wanted   string   `json:"wanted"`
	Changes  []Change `json:"changes"`
	Manual   string   `json:"manual"`
}

// Change is one thing to do.
type Change struct {
	Kind   string `json:"kind"`
	Path   string `json:"path,omitempty"`
	Unit   string `json:"unit,omitempty"`
	Name   string `json:"name,omitempty"`
	Value  string `json:"value,omitempty"`
	Remove bool   `json:"remove,omitempty"`
	NoVMs  bool   `json:"no_vms,omitempty"`
	Reboot bool   `json:"reboot,omitempty"`
	Text   string `json:"text"` // in words
}

// Rule is all that a rule says.
type Rule struct {
	ID       string   `json:"id"`
	Title    string   `json:"title"`
	Severity string   `json:"severity"`
	Roles    []string `json:"roles"`
	Holds    string   `json:"holds"`
	Cost     string   `json:"cost"`
	Sources  []Source `json:"sources"`
	Why      string   `json:"why"`
	Fix      string   `json:"fix"`
	Danger   string   `json:"danger"`
	Undo     string   `json:"undo"`
}

// Source is evidence.
type Source struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	Says string `json:"says"`
}

// Skip is a rule that was not asked.
type Skip struct {
	Rule   string `json:"rule"`
	Reason string `json:"reason"`
}

// JSON writes a report for programs.
func JSON(w io.Writer, r tuning.Report, about About) error {
	a := Audit{
		Date: about.Date, Version: about.Version, Source: about.Source, Host: hostOf(r.Host), Role: string(r.Role),
		Profile:  r.Profile.Name,
		Counts:   Counts{r.Count(tuning.Fault), r.Count(tuning.Warning), r.Count(tuning.Advice)},
		Findings: []Finding{}, Rules: []Rule{}, Asked: r.Applied, Skipped: []Skip{},
		Unread: append([]string{}, r.Host.Unread...),
		Sparse: r.Sparse(), Note: tuning.NotAdditive,
	}
	for _, result := range r.Results {
		a.Rules = append(a.Rules, RuleOf(result.Rule))
	}
	for _, f := range r.Findings() {
		a.Findings = append(a.Findings, findingOf(f))
	}
	for _, s := range r.Skipped {
		a.Skipped = append(a.Skipped, Skip{s.Rule.ID, s.Reason})
	}
	return encode(w, a)
}

func encode(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

func hostOf(h farm.HostFacts) Host {
	t := h.Topology
	memory := farm.Bytes(0)
	for _, n := range t.Nodes {
		memory += n.Memory
	}
	return Host{Name: h.Name, Virtual: h.Virtual, CPU: t.CPU.Name, Sockets: len(t.Sockets), Nodes: len(t.Nodes),
		Cores: len(t.Cores), Threads: t.Online.Len(), Memory: uint64(memory), OS: h.OS.Name, Kernel: h.Kernel.Release,
		QEMU: h.Versions.QEMU, Libvirt: h.Versions.Libvirt, VMs: len(h.Domains)}
}

func findingOf(f tuning.Finding) Finding {
	out := Finding{Rule: f.Rule, Severity: f.Severity.String(), Where: f.Where, Got: f.Got, Wanted: f.Wanted,
		Changes: []Change{}, Manual: f.Manual}
	for _, c := range f.Changes {
		out.Changes = append(out.Changes, Change{Kind: string(c.Kind), Path: c.Path, Unit: c.Unit, Name: c.Name,
			Value: c.Value, Remove: c.Remove, NoVMs: c.NoVMs, Reboot: c.Reboot, Text: ChangeText(c)})
	}
	return out
}

// RuleOf is the JSON form of a rule.
func RuleOf(r tuning.Rule) Rule {
	out := Rule{ID: r.ID, Title: r.Title, Severity: r.Severity.String(), Holds: r.Holds, Cost: r.Cost, Why: r.Why,
		Fix: r.Fix, Danger: r.Danger, Undo: r.Undo, Roles: []string{}, Sources: []Source{}}
	for _, role := range []tuning.Role{tuning.Compute, tuning.Service, tuning.Guest} {
		if r.For(role) {
			out.Roles = append(out.Roles, string(role))
		}
	}
	for _, s := range r.Sources {
		out.Sources = append(out.Sources, Source(s))
	}
	return out
}
