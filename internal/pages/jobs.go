package pages

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
	records "github.com/grange-project/grange/internal/server/usage"
	"github.com/grange-project/grange/internal/usage"
)

// jobsAtOnce is how many jobs one page shows.
const jobsAtOnce = 100

// jobList is the page of jobs that have ended.
type jobList struct {
	User, Host, Project, Cell, Kind, Ended string
	Period                                 period
	Kinds                                  []string
	Outcomes                               []usage.Outcome
	Active                                 *activeJobs // nil: the filter chooses none, or an older page is shown
	Rows                                   []jobRow
	Next, First                            string
	Narrow                                 bool // more than their age chooses them
}

// jobRow is one job that has ended.
type jobRow struct {
	Name, Kind, Path      string
	State, Tone, Why      string // how it ended
	User, Project         string
	Host, HostPath, Image string
	Start, End            time.Time
	Wall, CPU             string
	Cores                 int
	Busy                  string // part of its cores' time, in per cent; "": too short to say
}

// jobTones are the classes of how jobs ended.
var jobTones = map[usage.Outcome]string{usage.Done: "good", usage.Failed: "bad", usage.Cancelled: "off",
	usage.Lost: "warn"}

// jobKinds are the kinds of jobs for people.
var jobKinds = map[string]string{api.UsageJob: "job", api.UsageWorker: "worker", api.UsageMetal: "without a VM"}

func listJobs(v *visit) error {
	q := v.r.URL.Query()
	get := func(key string) string { return strings.TrimSpace(q.Get(key)) }
	l := jobList{User: get("user"), Host: get("host"), Project: get("project"), Cell: get("cell"), Kind: get("kind"),
		Ended: get("ended"), Period: periodOf(q, "Ended", "week"), Kinds: records.JobKinds, Outcomes: usage.Outcomes()}
	l.Narrow = l.User+l.Host+l.Project+l.Cell+l.Kind+l.Ended != ""
	page, err := v.Server.Usage.Jobs(v.ctx(), v.who, records.JobFilter{Since: l.Period.from(v.Now()), User: l.User,
		Host: l.Host, Project: l.Project, Cell: l.Cell, Kind: l.Kind, Outcome: usage.Outcome(l.Ended),
		After: get("after"), Limit: jobsAtOnce})
	if err != nil {
		return err
	}
	for _, u := range page.Items {
		l.Rows = append(l.Rows, jobRowOf(u))
	}
	if l.Ended+get("after") == "" && l.Kind != api.UsageMetal {
		active, err := activeJobsOf(v)
		if err != nil {
			return err
		}
		l.Active = &active
	}
	if page.Next != "" {
		l.Next = listBehind(v.r.URL, page.Next)
	}
	if get("after") != "" {
		l.First = listBehind(v.r.URL, "")
	}
	return v.show("jobs", "Jobs", "jobs", l)
}

func jobRowOf(u api.Usage) jobRow {
	outcome := usage.OutcomeOf(u)
	row := jobRow{Name: cmp.Or(u.Batch, u.Name, shortID(cmp.Or(u.Job, u.ID))), Kind: jobKinds[u.Kind],
		Path: jobPath(u.ID), State: string(outcome), Tone: jobTones[outcome], User: u.User,
		Project: cmp.Or(u.Project, u.Account), Host: u.Host, Image: u.Image, Start: u.Start, End: u.End, Cores: u.Cores,
		Wall: span(secondsOf(u.Wall)), CPU: "unknown"}
	if u.Ended != "exit:0" && u.Ended != string(outcome) {
		row.Why = u.Ended
	}
	if u.Host != "" {
		row.HostPath = hostPath(u.Host)
	}
	if u.CPU == nil {
		return row
	}
	row.CPU = span(secondsOf(*u.CPU))
	if all := u.Wall * float64(u.Cores); all >= 1 {
		row.Busy = fmt.Sprintf("%.0f %%", 100**u.CPU/all)
	}
	return row
}

// secondsOf is a time that a record has in seconds.
func secondsOf(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Truncate(time.Second)
}

// shortID is enough of an ID to tell jobs of a page apart.
func shortID(id string) string { return id[:min(len(id), 8)] }

// jobPath is the page of a job, by its ID or that of its record.
func jobPath(id string) string { return "/jobs/" + url.PathEscape(id) }

// jobsPath is the page of a host's jobs.
func jobsPath(host string) string { return "/jobs?" + url.Values{"host": {host}}.Encode() }
