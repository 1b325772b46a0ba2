package pages

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/usage"
)

// Of the page of jobs: how many it shows, and how many months it looks back.
const (
	jobsAtOnce = 100
	jobMonths  = 2
)

// jobsPage is what has run and ended, the newest first, of what the visitor may see the usage of.
type jobsPage struct {
	User, Project, Cell, Kind string
	Kinds                     []string
	Rows                      []jobRow
	Next, First               string // URLs; "": there is none
}

// jobRow is one record of usage.
type jobRow struct {
	Ended         time.Time
	Name, Kind    string
	User, Project string
	Host, Image   string
	Cores         int
	Wall          string
	Efficiency    string // CPU time of the cores' time; "": it had none
	Outcome, Tone string
	Began, Cell   string // for who looks closer
}

func listJobs(v *visit) error {
	q := v.r.URL.Query()
	page := jobsPage{User: q.Get("user"), Project: q.Get("project"), Cell: q.Get("cell"), Kind: q.Get("kind"),
		Kinds: []string{api.UsageJob, api.UsageWorker, api.UsageVM, api.UsageMetal}}
	now := v.Now()
	before, id := now.Add(time.Hour), "" // a host's clock may be ahead
	if text, at, ok := strings.Cut(q.Get("before"), "/"); ok {
		if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
			before, id = t, at
			page.First = page.at("")
		}
	}
	records, err := v.Server.Usage.Recent(v.ctx(), v.who, fleet.UsageQuery{User: page.User, Project: page.Project,
		Cell: page.Cell, Kind: page.Kind, From: usage.MonthOf(now.AddDate(0, -jobMonths, 0)), To: usage.MonthOf(now)},
		before, id, jobsAtOnce)
	if err != nil {
		return err
	}
	for _, u := range records {
		page.Rows = append(page.Rows, jobRowOf(u))
	}
	if n := len(records); n == jobsAtOnce {
		page.Next = page.at(records[n-1].End.UTC().Format(time.RFC3339Nano) + "/" + records[n-1].ID)
	}
	return v.show("jobs", "Jobs", "jobs", page)
}

// at is the page with the same filter, before one of its rows.
func (p jobsPage) at(before string) string {
	u := url.Values{"user": {p.User}, "project": {p.Project}, "cell": {p.Cell}, "kind": {p.Kind}, "before": {before}}
	return "/jobs?" + u.Encode()
}

func jobRowOf(u api.Usage) jobRow {
	row := jobRow{Ended: u.End, Name: cmp.Or(u.Batch, u.Name, u.Job, u.VM), Kind: u.Kind, User: u.User,
		Project: cmp.Or(u.Project, u.Account), Host: u.Host, Image: u.Image, Cores: u.Cores, Outcome: u.Ended,
		Wall: span(time.Duration(u.Wall * float64(time.Second)).Round(time.Second)), Tone: outcomeTone(u.Ended),
		Began: minute(u.Start), Cell: u.Cell}
	if full := u.Wall * float64(u.Cores); full > 0 {
		row.Efficiency = fmt.Sprintf("%.0f %%", 100*u.CPU/full)
	}
	return row
}

// outcomeTone is the class of how something ended.
func outcomeTone(ended string) string {
	switch ended {
	case "exit:0", api.EndedLeft, api.EndedStopped, api.EndedMoved, api.EndedCut:
		return "good"
	case "cancelled", api.EndedUnseen, api.EndedHostBooted:
		return "warn"
	}
	return "bad"
}
