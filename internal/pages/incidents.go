package pages

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/incidents"
)

// incidentsAtOnce is how many incidents one page shows; openAtOnce, how many of a host's or a VM's.
const (
	incidentsAtOnce = 100
	openAtOnce      = 10
)

// incidentList is the page of incidents.
type incidentList struct {
	State, Host, VM, Finding, Project string
	Period                            period
	Rows                              []incidentRow
	Next, First                       string
	Narrow                            bool // more than their state chooses them
}

// incidentRow is one incident of a list.
type incidentRow struct {
	ID              int64
	Path, Title     string
	State, Tone     string
	Concerns        []concernLink
	More            int // things that are not shown
	Opener          string
	Opened, Updated time.Time
}

// concernLink is a thing that an incident concerns.
type concernLink struct{ Kind, Name, Path string }

// concernsInRow is how many things a row of a list shows.
const concernsInRow = 4

// incidentTones are the classes of open incidents.
var incidentTones = map[farm.IncidentSeverity]string{farm.SeverityMinor: "dim", farm.SeverityMajor: "warn",
	farm.SeverityCritical: "bad"}

func incidentPath(id int64) string { return fmt.Sprintf("/incidents/%d", id) }

func incidentRowOf(v incidents.View) incidentRow {
	row := incidentRow{ID: v.ID, Path: incidentPath(v.ID), Title: v.Title, Opener: v.Opener, Opened: v.Opened,
		Updated: v.Touched, Concerns: concernLinks(v.Concerns), More: v.Hidden,
		State: "open, " + string(v.Severity), Tone: incidentTones[v.Severity]}
	if v.Closed {
		row.State, row.Tone = "closed, "+string(v.Severity), "off"
	}
	return row
}

// short is a row of a list, with as many things as fit.
func (r incidentRow) short() incidentRow {
	if beyond := len(r.Concerns) - concernsInRow; beyond > 0 {
		r.Concerns, r.More = r.Concerns[:concernsInRow], r.More+beyond
	}
	return r
}

func concernLinks(all []farm.Concern) (links []concernLink) {
	for _, k := range all {
		l := concernLink{Kind: string(k.Kind), Name: k.Name}
		switch k.Kind {
		case farm.ConcernHost:
			l.Path = hostPath(k.Name)
		case farm.ConcernVM:
			_, name, _ := strings.Cut(k.Name, "/")
			l.Kind, l.Path = "VM", vmPath(k.Project, name)
		case farm.ConcernProject:
			l.Path = "/incidents?state=all&project=" + url.QueryEscape(k.Name)
		case farm.ConcernCell:
			l.Path = "/farm?cell=" + url.QueryEscape(k.Name)
		case farm.ConcernFinding:
			l.Path = "/incidents?state=all&finding=" + url.QueryEscape(k.Name)
		}
		links = append(links, l)
	}
	return links
}

func listIncidents(v *visit) error {
	q := v.r.URL.Query()
	get := func(key string) string { return strings.TrimSpace(q.Get(key)) }
	l := incidentList{State: cmp.Or(get("state"), "open"), Host: get("host"), VM: get("vm"), Finding: get("finding"),
		Project: get("project"), Period: periodOf(q, "News", "")}
	f := incidents.Filter{Open: l.State == "open", Closed: l.State == "closed", Host: l.Host, VM: l.VM,
		Finding: l.Finding, Project: l.Project, Since: l.Period.from(v.Now()), Limit: incidentsAtOnce}
	f.Before, _ = strconv.ParseInt(get("after"), 10, 64) // none: from the newest on
	l.Narrow = l.Host+l.VM+l.Finding+l.Project+l.Period.Chosen != ""
	all, more, err := v.Server.Incidents.List(v.ctx(), v.who, f)
	if err != nil {
		return err
	}
	for _, i := range all {
		l.Rows = append(l.Rows, incidentRowOf(i).short())
	}
	if more {
		l.Next = listBehind(v.r.URL, strconv.FormatInt(all[len(all)-1].ID, 10))
	}
	if f.Before != 0 {
		l.First = listBehind(v.r.URL, "")
	}
	return v.show("incidents", "Incidents", "incidents", l)
}

// about is what the page of a host or a VM shows of its incidents.
type about struct {
	Open []incidentRow
	More bool
	All  string // path of all of them
	New  string // path of the form of a new one; "": the reader may not open one
}

// incidentsAbout are the open incidents of a host or a VM: key is its word in a query, name what people call it.
func incidentsAbout(v *visit, key, name, id string, t policy.Target) (a about, err error) {
	f := incidents.Filter{Open: true, Host: id, Limit: openAtOnce}
	if key == "vm" {
		f.Host, f.VM = "", id
	}
	all, more, err := v.Server.Incidents.List(v.ctx(), v.who, f)
	if err != nil {
		return a, err
	}
	query := url.Values{key: {name}}.Encode()
	a = about{More: more, All: "/incidents?state=all&" + query}
	for _, i := range all {
		a.Open = append(a.Open, incidentRowOf(i))
	}
	grants, err := v.Server.Accounts.Whoami(v.ctx(), v.who)
	if policy.Allow(v.who, grants, policy.OpenIncident, t).Allowed {
		a.New = "/incidents/new?" + query
	}
	return a, err
}

// incidentForm is the form of a new incident, as it was filled in.
type incidentForm struct {
	Values     url.Values
	Severities []farm.IncidentSeverity
	Once       string
	Failed     *trouble
}

func newIncident(v *visit) error {
	return showIncidentForm(v, http.StatusOK, v.r.URL.Query(), nil)
}

func showIncidentForm(v *visit, status int, values url.Values, failed error) error {
	f := incidentForm{Values: values, Severities: farm.IncidentSeverities,
		Once: cmp.Or(values.Get("once"), rand.Text())}
	if failed != nil {
		t := troubleOf(failed)
		f.Failed = &t
	}
	return v.write(status, "incident-new", "New incident", "incidents", f)
}

func openIncident(v *visit) error {
	if err := v.parse(); err != nil {
		return err
	}
	get := v.r.PostForm.Get
	began, err1 := moment("began", get("began"))
	names, links, err2 := namesOf(v.r.PostForm)
	err := farm.JoinErrors([]error{err1, err2})
	var made incidents.View
	if err == nil {
		made, err = v.Server.Incidents.Open(v.ctx(), v.who, incidents.Opening{Title: get("title"),
			Severity: farm.IncidentSeverity(get("severity")), Text: get("text"), Began: began, Names: names,
			Links: links, Once: get("once")})
	}
	if e, ok := errors.AsType[*farm.Error](err); ok && e.Kind != farm.Internal {
		return showIncidentForm(v, troubleOf(e).Status, v.r.PostForm, e)
	}
	if err != nil {
		return err
	}
	return v.to(incidentPath(made.ID))
}

// namesOf are the things that a form names, several of a kind with spaces or commas between them.
func namesOf(form url.Values) (n incidents.Names, links []int64, err error) {
	names := func(key string) []string {
		return strings.FieldsFunc(form.Get(key), func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	}
	n = incidents.Names{Hosts: names("host"), VMs: names("vm"), Findings: names("finding"), Projects: names("project"),
		Cells: names("cell")}
	for _, text := range names("incident") {
		id, err := strconv.ParseInt(strings.TrimPrefix(text, "#"), 10, 64)
		if err != nil {
			return n, nil, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest,
				Message: fmt.Sprintf("%.40q names no incident", text), Hint: "write its number"}
		}
		links = append(links, id)
	}
	return n, links, nil
}

// moment reads a time that may be left out, in UTC.
func moment(what, text string) (time.Time, error) {
	if text = strings.TrimSpace(text); text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02 15:04", time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest,
		Message: fmt.Sprintf("%s: %.40q is not a time", what, text), Hint: "write it as 2026-12-31 18:00"}
}

// incidentPage is one incident.
type incidentPage struct {
	incidentRow
	Severity    farm.IncidentSeverity
	Severities  []farm.IncidentSeverity
	Closed      bool
	Began       time.Time
	Ended       time.Time
	Linked      []linkedIncident
	Entries     []entryLine
	MayNote     bool
	MayClose    bool
	Once        string
	Failed      *trouble
	FailedVerb  string
	Values      url.Values
	Poll, Shown string
}

type linkedIncident struct {
	ID                 int64
	Path, Title, State string
}

// entryLine is an entry for people.
type entryLine struct {
	Number   int
	Time     time.Time
	Who, Did string
	About    string // before the things that it added
	Concerns []concernLink
	Links    []linkedIncident
	Severity farm.IncidentSeverity
	Ended    time.Time
	Text     string
}

// deeds are what kinds of entries did.
var deeds = map[farm.IncidentEntryKind]string{farm.EntryOpened: "opened it", farm.EntryNote: "wrote",
	farm.EntryLinked: "linked it", farm.EntryClosed: "closed it", farm.EntryReopened: "reopened it"}

func entryLineOf(e farm.IncidentEntry) entryLine {
	line := entryLine{Number: e.Number, Time: e.Time, Who: e.Who, Did: deeds[e.Kind], About: "; about",
		Concerns: concernLinks(e.Concerns), Severity: e.Severity, Ended: e.Ended, Text: e.Text}
	switch {
	case e.Kind == farm.EntryLinked && len(e.Concerns) > 0:
		line.Did, line.About = "", "added"
	case e.Kind == farm.EntryLinked && len(e.Links) > 0:
		line.Did = ""
	}
	for _, id := range e.Links {
		line.Links = append(line.Links, linkedIncident{ID: id, Path: incidentPath(id)})
	}
	return line
}

// incidentID is the one in the path; 0 is none's.
func incidentID(v *visit) int64 {
	id, _ := strconv.ParseInt(v.r.PathValue("incident"), 10, 64)
	return id
}

func showIncident(v *visit) error { return writeIncident(v, http.StatusOK, "", nil) }

// incidentNow answers with the part of the page that changes by itself.
func incidentNow(v *visit) error {
	page, err := incidentPageOf(v)
	if err != nil {
		return err
	}
	if page.Shown == v.r.URL.Query().Get("seen") {
		v.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return v.part("incident", "now", page)
}

func writeIncident(v *visit, status int, verb string, failed error) error {
	page, err := incidentPageOf(v)
	if err != nil {
		return err
	}
	page.Once, page.Values = rand.Text(), url.Values{}
	if failed != nil {
		t := troubleOf(failed)
		page.Failed, page.FailedVerb, page.Values = &t, verb, v.r.PostForm
	}
	return v.write(status, "incident", fmt.Sprintf("Incident %d", page.ID), "incidents", page)
}

func incidentPageOf(v *visit) (page incidentPage, err error) {
	i, err := v.Server.Incidents.Get(v.ctx(), v.who, incidentID(v))
	if err != nil {
		return page, err
	}
	page = incidentPage{incidentRow: incidentRowOf(i), Severity: i.Severity, Severities: farm.IncidentSeverities,
		Closed: i.Closed, Began: i.Began, Ended: i.Ended, MayNote: i.MayNote, MayClose: i.MayClose}
	for _, l := range i.Linked {
		linked := linkedIncident{ID: l.ID, Path: incidentPath(l.ID), Title: l.Title, State: "open"}
		if l.Closed {
			linked.State = "closed"
		}
		page.Linked = append(page.Linked, linked)
	}
	for _, e := range i.Said {
		page.Entries = append(page.Entries, entryLineOf(e))
	}
	page.Shown = sumOf(page)
	page.Poll = page.Path + "/now?seen=" + page.Shown
	return page, nil
}

// incidentVerbs are what the forms of an incident do.
var incidentVerbs = map[string]func(v *visit, id int64) error{
	"note": func(v *visit, id int64) error {
		_, err := v.Server.Incidents.Note(v.ctx(), v.who, id, incidents.Note{Text: v.r.PostForm.Get("text"),
			Severity: farm.IncidentSeverity(v.r.PostForm.Get("severity")), Once: v.r.PostForm.Get("once")})
		return err
	},
	"link": func(v *visit, id int64) error {
		names, links, err := namesOf(v.r.PostForm)
		if err == nil {
			_, err = v.Server.Incidents.Link(v.ctx(), v.who, id, incidents.Link{Names: names, Links: links,
				Text: v.r.PostForm.Get("text")})
		}
		return err
	},
	"close": func(v *visit, id int64) error {
		ended, err := moment("over at", v.r.PostForm.Get("ended"))
		if err == nil {
			_, err = v.Server.Incidents.Close(v.ctx(), v.who, id, 0, v.r.PostForm.Get("text"), ended)
		}
		return err
	},
	"reopen": func(v *visit, id int64) error {
		_, err := v.Server.Incidents.Reopen(v.ctx(), v.who, id, 0, v.r.PostForm.Get("text"))
		return err
	},
}

// doIncident does what a form of an incident says. What was refused is there to be sent again.
func doIncident(v *visit) error {
	verb := v.r.PathValue("verb")
	do, ok := incidentVerbs[verb]
	if !ok {
		return &farm.Error{Kind: farm.NotFound, Code: CodeNoPage, Message: "nothing is called " + strconv.Quote(verb),
			Hint: "go back to the incident's page"}
	}
	if err := v.parse(); err != nil {
		return err
	}
	err := do(v, incidentID(v))
	if e, ok := errors.AsType[*farm.Error](err); ok &&
		slices.Contains([]farm.Kind{farm.Invalid, farm.Conflict, farm.Denied, farm.NotFound}, e.Kind) {
		return writeIncident(v, troubleOf(e).Status, verb, e)
	}
	if err != nil {
		return err
	}
	return v.to(incidentPath(incidentID(v)))
}
