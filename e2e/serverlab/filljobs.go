package serverlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// AnEndedJob and AWaitingJob are jobs that every fleet has, the second on the first host.
const (
	AnEndedJob  = "00000000-0000-4000-8000-00000000e2e1"
	AWaitingJob = "00000000-0000-4000-8000-00000000e2e2"
)

// someStart is what the start of a VM took; some waited for room.
func someStart(n int) (phases []api.StartPhase) {
	at := 0.3
	for i, most := range []float64{4, []float64{3, 90000}[n%2], 60, 300, 1500, 40} {
		took := most * float64(10+(n*7+i*3)%10) / 20
		phases = append(phases, api.StartPhase{Name: []string{"image", "grant", "disk", "define", "boot", "guest"}[i], At: at,
			Milliseconds: took})
		at += took
	}
	return phases
}

// activeJobs are three of a host: most run, some start, some wait.
func activeJobs(n int, now time.Time) (all []fleet.Job) {
	for i := range 3 {
		j := fleet.Job{ID: api.NewID(), Kind: api.UsageJob, State: fleet.JobRunning,
			Batch: fmt.Sprint("slurm/", 52001+3*n+i), Queue: "long", User: []string{"ann", "carl", "eve"}[(n+i)%3],
			Account: "atlas", Image: "debian-13", Cores: 1 << ((n + i) % 5), Phases: someStart(n + i),
			Asked: now.Add(-time.Duration(1+(n*17+i*101)%600) * time.Minute)}
		j.Memory = uint64(j.Cores) << 31
		switch {
		case i == 2 && n%3 == 0:
			j.State, j.Why, j.Phases = fleet.JobWaiting, "2 jobs are before it, the first for 16 CPUs", j.Phases[:1]
		case i == 1 && n%7 == 0:
			j.State, j.Phases = fleet.JobStarting, j.Phases[:3]
		}
		all = append(all, j)
	}
	if n == 0 {
		all[2].ID = AWaitingJob
	}
	return all
}

func activeRow(j fleet.Job) (store.JobRow, error) {
	body, err := json.Marshal(j)
	return store.JobRow{ID: j.ID, Kind: j.Kind, State: j.State, Owner: j.User, Project: "atlas", Asked: j.Asked,
		Body: body}, err
}

// putActiveJobs writes jobs that have not ended, on some hosts.
func putActiveJobs(t *store.Tx, hosts []farm.Host) error {
	now := time.Now().UTC()
	for n, h := range hosts[:min(len(hosts), 500)] {
		var rows []store.JobRow
		for _, j := range activeJobs(n, now) {
			row, err := activeRow(j)
			if err != nil {
				return err
			}
			rows = append(rows, row)
		}
		if err := t.SetHostJobs(h.ID, rows); err != nil {
			return err
		}
	}
	return nil
}

// putDrift writes what came and went of the findings of some hosts.
func putDrift(t *store.Tx, hosts []farm.Host) error {
	now := time.Now().UTC()
	for n, h := range hosts[:min(len(hosts), 1000)] {
		if n%27 != 0 {
			continue
		}
		changes := []store.FindingChange{{Host: h.ID, Rule: "swappiness-high",
			At: now.Add(-time.Duration(n) * time.Minute)}}
		if len(h.Facts.Findings) > 0 {
			changes = append(changes, store.FindingChange{Host: h.ID, Rule: h.Facts.Findings[0].Rule, Came: true,
				Updated: n%2 == 0, At: now.Add(-time.Duration(2*n) * time.Minute)})
		}
		if err := t.AddFindingChanges(changes); err != nil {
			return err
		}
	}
	return nil
}

// RunWaitingJob has AWaitingJob run, as its host would report it: the store is written to beside the server.
func RunWaitingJob(ctx context.Context, path string) error {
	db, err := store.Open(ctx, path)
	if err != nil {
		return err
	}
	_, err = db.Update(ctx, func(t *store.Tx) error {
		found, err := t.JobsCalled(AWaitingJob, store.UsageSight{All: true})
		if err != nil || len(found) != 1 {
			return fmt.Errorf("%d jobs %s: %w", len(found), AWaitingJob, err)
		}
		j := activeJobs(0, time.Now().UTC())[2]
		j.State, j.Why, j.Phases = fleet.JobRunning, "", someStart(2)
		row, err := activeRow(j)
		if err != nil {
			return err
		}
		return t.SetHostJobs(found[0].Host, []store.JobRow{row})
	})
	return errors.Join(err, db.Close())
}
