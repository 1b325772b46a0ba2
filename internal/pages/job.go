package pages

import (
	"fmt"
	"net/http"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/usage"
)

// jobPage is one job.
type jobPage struct {
	activeRow
	ID, Batch, Queue              string
	Account, Project, Shape, Cell string
	Began, Ended                  time.Time // its VM; zero: it has not ended
	How, Ran                      string    // how it ended, and how long its VM was there
	CPU                           string    // that it used
	CPUBar                        bar
	Peak                          farm.Bytes
	Network                       string
	Findings                      int // of its host's audit, when it began
	Poll, Shown                   string
}

func showJob(v *visit) error {
	page, err := jobPageOf(v)
	if err != nil {
		return err
	}
	return v.show("job", page.Name, "jobs", page)
}

// jobNow answers with the part of the page that changes by itself.
func jobNow(v *visit) error {
	page, err := jobPageOf(v)
	if err != nil {
		return err
	}
	if page.Shown != "" && page.Shown == v.r.URL.Query().Get("seen") {
		v.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return v.part("job", "now", page)
}

func jobPageOf(v *visit) (page jobPage, err error) {
	j, err := v.Server.Usage.Job(v.ctx(), v.who, v.r.PathValue("job"))
	if err != nil {
		return page, err
	}
	page = jobPage{activeRow: activeRowOf(j, v.Now()), ID: j.ID, Batch: j.Batch, Queue: j.Queue, Account: j.Account,
		Project: j.Project, Shape: j.Shape, Cell: j.Cell}
	if u := j.Record; u != nil {
		page.setRecord(*u)
		return page, nil // nothing of it changes any more
	}
	page.Shown = sumOf(page)
	page.Poll = jobPath(j.ID) + "/now?seen=" + page.Shown
	return page, nil
}

// setRecord shows how a job ended, and what it has used.
func (p *jobPage) setRecord(u api.Usage) {
	ended := jobRowOf(u)
	p.State, p.Tone, p.Why = ended.State, ended.Tone, ""
	p.How, p.Ran, p.Began, p.Ended = ended.Why, ended.Wall, u.Start, u.End
	p.Peak, p.Findings = farm.Bytes(max(u.MemoryPeak, u.JobMemory)), u.Findings
	p.CPU = fmt.Sprintf("%s on %s", ended.CPU, farm.Count(u.Cores, "CPU"))
	if u.CPU != nil {
		p.CPUBar = bar{share(int(*u.CPU), int(u.Wall*float64(u.Cores)))}
	}
	if usage.OutcomeOf(u) == usage.Done {
		p.How = ""
	}
	if u.NetworkIn != nil && u.NetworkOut != nil {
		p.Network = fmt.Sprintf("%s in, %s out", size(farm.Bytes(*u.NetworkIn)), size(farm.Bytes(*u.NetworkOut)))
	}
}
