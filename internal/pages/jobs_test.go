package pages

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/store"
)

// ended writes a job that ended so long ago.
func (l *lab) ended(ago time.Duration, change func(*api.Usage)) {
	l.t.Helper()
	end := time.Now().Add(-ago)
	u := api.Usage{ID: api.NewID(), Kind: api.UsageJob, User: "bob", Project: "atlas", Cell: "east", Host: "h1",
		Image: "debian-13", Cores: 4, Start: end.Add(-2 * time.Hour), End: end, Wall: 7200, CPU: new(14400.0), Ended: "exit:0"}
	change(&u)
	body, err := json.Marshal(u)
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.store.Update(l.t.Context(), func(tx *store.Tx) error {
		_, err := tx.PutUsage(store.UsageRow{ID: u.ID, Month: end.Format("2006-01"), Ended: end, Kind: u.Kind,
			Owner: u.User, Project: u.Project, Cell: u.Cell, Host: u.Host, Body: body})
		return err
	}); err != nil {
		l.t.Fatal(err)
	}
}

// TestJobs: what has ended of what one may see, by what one asks for.
func TestJobs(t *testing.T) {
	l := newLab(t)
	l.shows("ann", "/jobs", "No job has ended in this time")
	l.ended(time.Hour, func(u *api.Usage) { u.Batch = "slurm/17" })
	l.ended(2*time.Hour, func(u *api.Usage) {
		u.Batch, u.User, u.Ended = "slurm/16", "<b>carl</b>", "signal:9"
	})
	l.ended(3*time.Hour, func(u *api.Usage) { u.Batch, u.Project, u.Cell, u.Host = "slurm/15", "core", "west", "h2" })
	l.ended(10*24*time.Hour, func(u *api.Usage) { u.Batch, u.Kind, u.Host = "slurm/14", api.UsageMetal, "" })
	l.shows("ann", "/jobs", "slurm/17", "slurm/16", "&lt;b&gt;carl", `<span class="state bad">failed`, "signal:9",
		`href="/hosts/h1"`, "debian-13", ">2 h<", ">4 h<", ">50 %<")
	l.lacks("ann", "/jobs", "slurm/15", "slurm/14")
	l.shows("ann", "/jobs?since=month", "slurm/14", "without a VM")
	l.lacks("ann", "/jobs?since=month&kind=job", "slurm/14")
	l.lacks("ann", "/jobs?ended=failed", "slurm/17")
	l.shows("ann", "/jobs?ended=failed", "slurm/16", "<option selected>failed")
	l.lacks("ann", "/jobs?user=bob", "slurm/16")
	l.shows("ann", "/jobs?host=h2", "No job is chosen by this filter.")
	l.shows("otto", "/jobs", "slurm/17")
	l.shows("eve", "/jobs", "No job has ended in this time that you may see.")
	_, body, _ := l.as("ann", "/jobs", nil)
	if strings.Index(body, "slurm/17") > strings.Index(body, "slurm/16") {
		t.Error("the newest is not first")
	}
	for path, want := range map[string]int{"/jobs?after=x": http.StatusBadRequest,
		"/jobs?kind=vm": http.StatusBadRequest, "/jobs?since=x": http.StatusOK} {
		if status, body, _ := l.as("ann", path, nil); status != want {
			t.Errorf("%s: %d\n%s", path, status, body)
		}
	}
}

// TestManyJobs: they are on pages, each job on one of them.
func TestManyJobs(t *testing.T) {
	l := newLab(t)
	const jobs = 2*jobsAtOnce + 3
	for i := range jobs {
		l.ended(time.Duration(i/2)*time.Minute, func(u *api.Usage) { u.Batch = fmt.Sprintf("slurm/%03d", i) })
	}
	l.eachOnce("ann", "/jobs", regexp.MustCompile(`slurm/\d+`), jobs)
}
