package pages

import (
	"net/url"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/tuning"
)

// hostsOfRule is how many hosts of a rule one page shows, and hostsInRow how many of them a row of the list does.
const (
	hostsOfRule = 100
	hostsInRow  = 3
)

// auditPage is what the tuning audit found over the fleet.
type auditPage struct {
	Filter         server.AuditFilter
	Cells, Kinds   []string
	Severities     []string
	Hosts, Unknown int
	Clean          int
	Rules          []ruleRow
	Rule           *rulePage // the one that is asked for
	Narrow         bool
	Period         period // of Drift
	Drift          server.AuditDrift
}

// ruleRow is a rule that found something.
type ruleRow struct {
	Rule, Title, Path string
	State, Tone       string // its severity
	Hosts             int
	Kinds             []kindRow
	On                []server.AuditedHost // some of them
	More              int
}

// kindRow is the hosts of one type of hardware on which a rule found something.
type kindRow struct {
	Kind, Path string
	Hosts, Of  int
	Bar        bar
}

// rulePage is one rule: what it is about, and all its hosts.
type rulePage struct {
	ID, Title, Cost, Why, Fix string
	Incidents, Report         string // paths
	On                        []foundRow
	Chosen                    int
	Next, First, All          string
}

// foundRow is a host on which a rule found something.
type foundRow struct {
	Name, Cell, Kind string
	State, Tone      string
	Places           int
}

// severityTones are the classes of severities.
var severityTones = map[string]string{"fault": "bad", "warning": "warn", "advice": "dim"}

func showAudit(v *visit) error {
	q := v.r.URL.Query()
	get := func(key string) string { return strings.TrimSpace(q.Get(key)) }
	page := auditPage{Severities: server.Severities, Filter: server.AuditFilter{Cell: get("cell"), Kind: get("kind"),
		Severity: get("severity"), Rule: get("rule")}, Period: periodOf(q, "Changes", "week")}
	a, err := v.Server.Hosts.Audit(v.ctx(), v.who, page.Filter, page.Period.from(v.Now()))
	if err != nil {
		return err
	}
	page.Cells, page.Kinds, page.Hosts, page.Unknown, page.Clean = a.Cells, a.Kinds, a.Hosts, a.Unknown, a.Clean
	page.Drift, page.Narrow = a.Drift, page.Filter != server.AuditFilter{}
	titles := map[string]string{} // of this release; hosts may have rules of another one
	for _, r := range tuning.Rules() {
		titles[r.ID] = r.Title
	}
	for _, r := range a.Rules {
		page.Rules = append(page.Rules, ruleRowOf(r, titles[r.Rule], v.r.URL))
	}
	if id := page.Filter.Rule; id != "" {
		p := rulePageOf(id)
		p.All = auditWith(v.r.URL, "rule", "")
		for _, r := range a.Rules { // one, or none
			p.list(r.On, v.r.URL)
		}
		page.Rule = &p
	}
	title := "Audit"
	if page.Rule != nil {
		title = "Audit: " + page.Rule.ID
	}
	return v.show("audit", title, "audit", page)
}

// auditWith is the address of the page with another word of its filter; "": with any.
func auditWith(u *url.URL, key, value string) string {
	q := u.Query()
	q.Del("after")
	q.Set(key, value)
	if value == "" {
		q.Del(key)
	}
	return (&url.URL{Path: "/audit", RawQuery: q.Encode()}).RequestURI()
}

func ruleRowOf(r server.AuditRule, title string, u *url.URL) ruleRow {
	row := ruleRow{Rule: r.Rule, Title: title, Path: auditWith(u, "rule", r.Rule), State: r.Severity,
		Tone: severityTones[r.Severity], Hosts: len(r.On), On: r.On}
	if row.More = len(r.On) - hostsInRow; row.More > 0 {
		row.On = r.On[:hostsInRow]
	}
	for _, k := range r.Kinds {
		of, _ := url.Parse(row.Path)
		row.Kinds = append(row.Kinds, kindRow{Kind: k.Kind, Hosts: k.Hosts, Of: k.Of, Bar: bar{share(k.Hosts, k.Of)},
			Path: auditWith(of, "kind", k.Kind)})
	}
	return row
}

// rulePageOf says what is known of a rule; of one of another release that is its name.
func rulePageOf(id string) rulePage {
	p := rulePage{ID: id, Incidents: "/incidents?" + url.Values{"state": {"all"}, "finding": {id}}.Encode(),
		Report: "/incidents/new?" + url.Values{"finding": {id}}.Encode()}
	if r, err := tuning.RuleByID(id); err == nil {
		p.Title, p.Cost, p.Why, p.Fix = r.Title, r.Cost, r.Why, r.Fix
	}
	return p
}

// list fills the table of hosts, which are in order by cell and name.
func (p *rulePage) list(on []server.AuditedHost, u *url.URL) {
	after := hostFilter{After: u.Query().Get("after")}
	last := ""
	p.Chosen = len(on)
	for _, h := range on {
		if after.passed(h.Cell, h.Name) {
			continue
		}
		if len(p.On) == hostsOfRule {
			p.Next = listBehind(u, last)
			break
		}
		last = h.Cell + "/" + h.Name
		p.On = append(p.On, foundRow{Name: h.Name, Cell: h.Cell, Kind: h.Kind, State: h.Severity,
			Tone: severityTones[h.Severity], Places: h.Places})
	}
	if after.After != "" {
		p.First = listBehind(u, "")
	}
}

// findingRow is what the audit found of the host of a page.
type findingRow struct {
	Rule, Path, State, Tone string
	Places                  int
}

func findingRows(h farm.Host) (rows []findingRow) {
	for _, f := range h.Facts.Findings {
		rows = append(rows, findingRow{Rule: f.Rule, Path: "/audit?" + url.Values{"rule": {f.Rule}}.Encode(),
			State: f.Severity, Tone: severityTones[f.Severity], Places: f.Places})
	}
	return rows
}
