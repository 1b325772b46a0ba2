package usage

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// CodeNoJob is of a job that is not there, or that the caller may not see.
const CodeNoJob farm.Code = "no-job"

// TakeJobs takes which jobs of a host have not ended: all of them. What makes no sense is left out.
func (s *Usage) TakeJobs(ctx context.Context, who farm.Identity, in fleet.HostJobs) error {
	var projects []farm.Project
	var has map[string]string
	if err := s.Store.View(ctx, func(t *store.Tx) (err error) {
		if projects, err = t.Projects(); err == nil {
			has, err = t.HostJobs(who.Host)
		}
		return err
	}); err != nil {
		return err
	}
	rows, err := jobRows(in.Jobs, projects)
	if err != nil || sameJobs(rows, has) { // as of all hosts at once, when a server is started anew: nobody writes
		return err
	}
	_, err = s.Store.Update(ctx, func(t *store.Tx) error { return t.SetHostJobs(who.Host, rows) })
	return err
}

// jobRows are the jobs of a host, each once, without those that make no sense.
func jobRows(jobs []fleet.Job, projects []farm.Project) (rows []store.JobRow, err error) {
	seen := map[string]bool{}
	for _, j := range jobs[:min(len(jobs), fleet.MaxHostJobs)] {
		j, ok := cleanJob(j)
		if !ok || seen[j.ID] {
			continue
		}
		seen[j.ID] = true
		j.Project = projectOf(j.Account, projects)
		body, err := json.Marshal(j)
		if err != nil {
			return nil, err
		}
		rows = append(rows, store.JobRow{ID: j.ID, Kind: j.Kind, State: j.State, Owner: j.User, Project: j.Project,
			Asked: j.Asked, Body: body})
	}
	return rows, nil
}

func sameJobs(rows []store.JobRow, has map[string]string) bool {
	return len(rows) == len(has) && !slices.ContainsFunc(rows, func(r store.JobRow) bool {
		return has[r.ID] != string(r.Body)
	})
}

// cleanJob is what a host may say of a job; ok is false where that makes no sense.
func cleanJob(j fleet.Job) (clean fleet.Job, ok bool) {
	const most = 512 // bytes of a word, as of a host's other words
	if !farm.IsID(j.ID) || j.Kind != api.UsageJob && j.Kind != api.UsageWorker ||
		!slices.Contains(fleet.JobStates, j.State) || j.Cores < 0 || j.Cores > farm.MaxCPUs || j.Asked.Year() > 9999 ||
		j.Asked.Year() < 1970 {
		return j, false
	}
	for _, word := range []*string{&j.Why, &j.Name, &j.Batch, &j.Queue, &j.User, &j.Account, &j.Image, &j.Shape} {
		*word = farm.Clean(*word, most)
	}
	j.Host, j.Cell, j.Project, j.Silent, j.Record = "", "", "", false, nil
	j.Phases = cleanPhases(j.Phases)
	return j, true
}

// cleanPhases are the phases of a start that make sense.
func cleanPhases(all []api.StartPhase) (clean []api.StartPhase) {
	const mostName, mostMilliseconds = 32, mostWall * 1000
	for _, p := range all[:min(len(all), api.MaxStartPhases)] {
		if p.Name = farm.Clean(p.Name, mostName); within(p.At, mostMilliseconds) &&
			within(p.Milliseconds, mostMilliseconds) {
			clean = append(clean, p)
		}
	}
	return clean
}

// projectOf is the project that an account is of; "": of none.
func projectOf(account string, projects []farm.Project) string {
	if account == "" {
		return ""
	}
	i := slices.IndexFunc(projects, func(p farm.Project) bool { return p.Account == account })
	if i < 0 {
		i = slices.IndexFunc(projects, func(p farm.Project) bool { return p.Account == "" && p.Name == account })
	}
	if i < 0 {
		return ""
	}
	return projects[i].Name
}

// Active are the jobs of hosts that have not ended, that the caller may see and a query chooses, the newest first.
func (s *Usage) Active(ctx context.Context, who farm.Identity,
	q fleet.JobQuery) (page fleet.Page[fleet.Job], err error) {
	f := store.JobFilter{State: q.State, Owner: q.User, Project: q.Project, Cell: q.Cell, Host: q.Host}
	if q.State != "" && !slices.Contains(fleet.JobStates, q.State) {
		return page, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest,
			Message: fmt.Sprintf("no job is %.40q before its end", q.State),
			Hint:    "take one of " + strings.Join(fleet.JobStates, ", ")}
	}
	if f.Before, f.BeforeID, err = behind(q.After); err != nil {
		return page, err
	}
	limit := min(cmp.Or(max(q.Limit, 0), mostJobs), mostJobs)
	f.Limit = limit + 1 // one more says that there are more
	err = s.Actions.Look(ctx, who, policy.ReadUsage, func(c *action.Call) (err error) {
		page = fleet.Page[fleet.Job]{Items: []fleet.Job{}}
		if f.Sees, err = s.sees(c); err != nil {
			return err
		}
		rows, err := c.Jobs(f)
		for _, r := range rows[:min(len(rows), limit)] {
			j, err := s.activeJob(r)
			if err != nil {
				return err
			}
			page.Items = append(page.Items, j)
		}
		if len(rows) > limit {
			page.Next = place(rows[limit-1].Asked, rows[limit-1].ID)
		}
		return err
	})
	return page, err
}

func (s *Usage) activeJob(r store.JobRow) (j fleet.Job, err error) {
	err = json.Unmarshal(r.Body, &j)
	j.Host, j.Cell, j.Project = r.HostName, r.Cell, r.Project
	j.Silent = s.Silent != nil && s.Silent(farm.Host{ID: r.Host, Seen: r.Seen})
	return j, err
}

func endedJob(body []byte) (fleet.Job, error) {
	var u api.Usage
	if err := json.Unmarshal(body, &u); err != nil {
		return fleet.Job{}, err
	}
	j := fleet.Job{ID: cmp.Or(u.Job, u.ID), Kind: u.Kind, State: fleet.JobEnded, Name: u.Name, Batch: u.Batch,
		Queue: u.Queue, User: u.User, Account: u.Account, Image: u.Image, Shape: u.Shape, Cores: u.Cores,
		Memory: u.Memory, Asked: u.Asked, Phases: u.Phases, Host: u.Host, Cell: u.Cell, Project: u.Project, Record: &u}
	return j, nil
}

// Job is the one with an ID: its own, or that of its record.
func (s *Usage) Job(ctx context.Context, who farm.Identity, id string) (job fleet.Job, err error) {
	err = s.Actions.Look(ctx, who, policy.ReadUsage, func(c *action.Call) error {
		may, err := s.sees(c)
		if err != nil {
			return err
		}
		found, err := s.called(c, id, may)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			job = found[0]
			return nil
		}
		return &farm.Error{Kind: farm.NotFound, Code: CodeNoJob,
			Message: fmt.Sprintf("there is no job %.40q that you may see", id),
			Hint:    "GET /v1/jobs and /v1/jobs/active have them; a job that never had a VM leaves no record"}
	})
	return job, err
}

// called are the jobs in sight of an ID: those that have not ended, and then those that have, the latest first.
func (s *Usage) called(c *action.Call, id string, sees store.UsageSight) (found []fleet.Job, err error) {
	rows, err := c.JobsCalled(id, sees)
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		j, err := s.activeJob(r)
		if err != nil {
			return nil, err
		}
		found = append(found, j)
	}
	bodies, err := c.UsageOfJob(id, sees)
	if err != nil {
		return nil, err
	}
	begin := len(found)
	for _, body := range bodies {
		j, err := endedJob(body)
		if err != nil {
			return nil, err
		}
		found = append(found, j)
	}
	slices.SortStableFunc(found[begin:], func(a, b fleet.Job) int { return b.Record.End.Compare(a.Record.End) })
	return found, nil
}
