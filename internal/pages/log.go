package pages

import (
	"net/url"
	"strconv"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server"
)

// entriesAtOnce is how many entries of the log one page shows.
const entriesAtOnce = 100

// logPage is the audit log: who did what, newest first.
type logPage struct {
	Who, Project string
	Rows         []logRow
	Next, First  string // URLs; "": there is none
}

type logRow struct {
	Time                          time.Time
	Who, How                      string
	Action, Target, Outcome, Tone string
	Reason                        string
}

// outcomeTones are the classes of outcomes.
var outcomeTones = map[string]string{"done": "good", "denied": "warn", "failed": "bad"}

func showLog(v *visit) error {
	q := v.r.URL.Query()
	before, _ := strconv.ParseInt(q.Get("before"), 10, 64) // none: from the newest on
	page := logPage{Who: q.Get("who"), Project: q.Get("project")}
	f := server.EntryFilter{Project: page.Project, Who: page.Who, Before: before, Limit: entriesAtOnce}
	entries, err := v.Server.Entries(v.ctx(), v.who, f)
	if farm.IsKind(err, farm.Denied) && page.Who == "" && page.Project == "" {
		page.Who, f.Who = v.who.User, v.who.User // what everybody may read
		entries, err = v.Server.Entries(v.ctx(), v.who, f)
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		page.Rows = append(page.Rows, logRowOf(e))
	}
	at := func(before string) string {
		u := url.Values{"who": {page.Who}, "project": {page.Project}, "before": {before}}
		return "/log?" + u.Encode()
	}
	if len(entries) == entriesAtOnce {
		page.Next = at(strconv.FormatInt(entries[len(entries)-1].ID, 10))
	}
	if before > 0 {
		page.First = at("")
	}
	return v.show("log", "Log", "log", page)
}

func logRowOf(e farm.Entry) logRow {
	row := logRow{Time: e.Time, Who: e.Who, How: e.Means, Action: e.Action, Target: e.Target, Outcome: e.Outcome,
		Tone: outcomeTones[e.Outcome], Reason: e.Reason}
	if e.Source != "" {
		row.How += " " + e.Source
	}
	return row
}
