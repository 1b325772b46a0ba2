package pages

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// activeJobs is the part of the page of jobs that is kept up to date: those that have not ended.
type activeJobs struct {
	Poll, Seen string
	Rows       []activeRow
	More       bool // there are more than are shown
	Narrow     bool // a filter chooses them
}

// activeRow is one job that has not ended.
type activeRow struct {
	Path, Name, Kind string
	State, Tone, Why string
	User, Host       string
	Image, Size      string
	Asked            time.Time
	Age              string // how long ago that was
	Start            string // how long its start took so far; "": nothing of it is over
	Phases           []phaseBar
}

// phaseBar is one phase of a start, as a bar on a scale of a thousand.
type phaseBar struct {
	Name, Took, From string
	X, Width         int
	Class            string // of the bar
}

// activeTones are the classes of states of jobs that have not ended.
var activeTones = map[string]string{fleet.JobWaiting: "dim", fleet.JobStarting: "busy", fleet.JobRunning: "good",
	fleet.JobSuspended: "off", fleet.JobUnresponsive: "bad", fleet.JobKept: "off"}

func activeRowOf(j fleet.Job, now time.Time) activeRow {
	row := activeRow{Path: jobPath(j.ID), Name: jobName(j), Kind: jobKinds[j.Kind], Why: j.Why, State: j.State,
		Tone: activeTones[j.State], User: j.User, Host: j.Host, Image: j.Image, Size: farm.Count(j.Cores, "CPU"),
		Asked: j.Asked, Age: span(now.Sub(j.Asked)), Phases: phaseBars(j.Phases)}
	if j.Memory > 0 { // of a job without a VM it is not known
		row.Size = fmt.Sprintf("%d × %s", j.Cores, farm.Bytes(j.Memory).Rounded())
	}
	if j.Silent {
		row.Tone, row.Why = "dim", "as its host reported before it fell silent"
	}
	if len(j.Phases) > 0 {
		row.Start = took(endOf(j.Phases))
	}
	return row
}

// jobName is what people call a job: by its batch system, or of a worker its node.
func jobName(j fleet.Job) string { return cmp.Or(j.Batch, j.Name, shortID(j.ID)) }

// endOf is when the last phase of a start is over, in milliseconds.
func endOf(all []api.StartPhase) (end float64) {
	for _, p := range all {
		end = max(end, p.At+p.Milliseconds)
	}
	return end
}

// phaseBars are phases as a waterfall. What a VM waited for is marked: it is not what its start costs.
func phaseBars(all []api.StartPhase) (bars []phaseBar) {
	const scale = 1000
	whole := max(endOf(all), 1)
	for n, p := range all {
		b := phaseBar{Name: p.Name, Took: took(p.Milliseconds), From: took(p.At), X: int(p.At / whole * scale),
			Class: []string{"held", "part"}[n%2]} // each beside another one
		b.Width = max(int((p.At+p.Milliseconds)/whole*scale)-b.X, 4)
		b.X = min(b.X, scale-b.Width)
		if p.Name == "grant" || p.Name == "fetch" {
			b.Class = "more"
		}
		bars = append(bars, b)
	}
	return bars
}

// took is a duration for people who look at milliseconds.
func took(milliseconds float64) string {
	switch {
	case milliseconds < 1000:
		return fmt.Sprintf("%.0f ms", milliseconds)
	case milliseconds < 60000:
		return fmt.Sprintf("%.2f s", milliseconds/1000)
	}
	return span(time.Duration(milliseconds) * time.Millisecond)
}

// activeJobsOf are those that the page's filter chooses.
func activeJobsOf(v *visit) (l activeJobs, err error) {
	query := v.r.URL.Query()
	get := func(key string) string { return strings.TrimSpace(query.Get(key)) }
	q := fleet.JobQuery{User: get("user"), Host: get("host"), Project: get("project"), Cell: get("cell"),
		State: get("state"), Limit: jobsAtOnce}
	page, err := v.Server.Usage.Active(v.ctx(), v.who, q)
	if err != nil {
		return l, err
	}
	kind, now := get("kind"), v.Now()
	for _, j := range page.Items {
		if kind == "" || kind == j.Kind {
			l.Rows = append(l.Rows, activeRowOf(j, now))
		}
	}
	l.More, l.Narrow = page.Next != "", q.User+q.Host+q.Project+q.Cell+q.State+kind != ""
	l.Seen = sumOf(l.Rows)
	query.Set("seen", l.Seen)
	l.Poll = "/jobs/rows?" + query.Encode()
	return l, nil
}

// jobsNow answers with the rows, or with nothing where they are what the page shows already.
func jobsNow(v *visit) error {
	l, err := activeJobsOf(v)
	if err != nil {
		return err
	}
	if l.Seen == v.r.URL.Query().Get("seen") {
		v.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return v.part("jobs", "active", l)
}
