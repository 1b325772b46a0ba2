package store

import (
	"strings"
	"time"
)

// jobRows are jobs and workers of hosts that have not ended. The feed does not tell of them.
type jobRows struct{ *sqlTx }

// JobRow is a job that has not ended: what is searched for, and a text that is the server's own.
type JobRow struct {
	ID, Kind, State, Owner, Project string
	Asked                           time.Time
	Body                            []byte

	Host, HostName, Cell string // of reads; Host is an ID
	Seen                 time.Time
}

// JobFilter chooses jobs that have not ended and that the caller may see; empty fields choose all.
type JobFilter struct {
	State, Owner, Project, Cell, Host string // Host is a name
	Sees                              UsageSight
	Before                            time.Time // page: those asked for before, or then with an ID before BeforeID
	BeforeID                          string
	Limit                             int
}

const jobsOfHosts = "SELECT j.id, j.kind, j.state, j.owner, j.project, j.asked, j.body, h.id, h.name, h.cell, h.seen " +
	"FROM host_jobs j JOIN hosts h ON h.id = j.host"

func (t jobRows) jobs(text string, args ...any) (all []JobRow, err error) {
	err = t.each(func(r scanner) error {
		var j JobRow
		var asked, seen int64
		var body string
		err := r.Scan(&j.ID, &j.Kind, &j.State, &j.Owner, &j.Project, &asked, &body, &j.Host, &j.HostName, &j.Cell,
			&seen)
		j.Asked, j.Seen, j.Body = unstamp(asked), unstamp(seen), []byte(body)
		all = append(all, j)
		return err
	}, jobsOfHosts+text, args...)
	return all, err
}

// Jobs are those that have not ended and that a filter chooses, the latest asked for first.
func (t jobRows) Jobs(f JobFilter) ([]JobRow, error) {
	var args places
	conditions := []string{"1 = 1"}
	if !f.Before.IsZero() {
		at := args.value(stamp(f.Before))
		conditions = append(conditions, "j.asked <= "+at, "(j.asked < "+at+" OR j.id < "+args.value(f.BeforeID)+")")
	}
	conditions = append(conditions, chosenUsage(args.text, []chosen{{"state", f.State}, {"owner", f.Owner},
		{"project", f.Project}, {"cell", f.Cell}, {"h.name", f.Host}})...)
	conditions = append(conditions, f.Sees.conditions(args.text)...)
	limit := args.value(f.Limit)
	return t.jobs(" WHERE "+strings.Join(conditions, " AND ")+" ORDER BY j.asked DESC, j.id DESC LIMIT "+limit, args...)
}

// JobsCalled are those in sight that have not ended and have an ID. Several hosts may say that they have the same.
func (t jobRows) JobsCalled(id string, sees UsageSight) ([]JobRow, error) {
	args := places{id}
	conditions := append([]string{"j.id = $1"}, sees.conditions(args.text)...)
	return t.jobs(" WHERE "+strings.Join(conditions, " AND ")+" ORDER BY j.host", args...)
}

// UsageOfJob are the texts of records of a job that are in sight, by its ID or that of its record.
func (t jobRows) UsageOfJob(id string, sees UsageSight) (bodies [][]byte, err error) {
	args := places{id}
	conditions := append([]string{"kind IN ('job', 'worker', 'metal')", counts}, sees.conditions(args.text)...)
	both := strings.Join(conditions, " AND ")
	return usageRows(t).usageBodies("WHERE id = $1 AND "+both+" UNION ALL SELECT body FROM usage_records WHERE job = $1"+
		" AND job <> '' AND "+both+" ORDER BY body", args...)
}

// HostJobs are the texts of the jobs of a host that have not ended, by their IDs.
func (t jobRows) HostJobs(host string) (map[string]string, error) {
	bodies := map[string]string{}
	err := t.each(func(r scanner) error {
		var id, body string
		err := r.Scan(&id, &body)
		bodies[id] = body
		return err
	}, "SELECT id, body FROM host_jobs WHERE host = $1", host)
	return bodies, err
}

// SetHostJobs writes all jobs of a host that have not ended. What is as it was is not written.
func (t jobRows) SetHostJobs(host string, all []JobRow) error {
	was, err := t.HostJobs(host)
	if err != nil {
		return err
	}
	for _, j := range all {
		body, known := was[j.ID]
		if delete(was, j.ID); known && body == string(j.Body) {
			continue
		}
		if _, err := t.exec(`INSERT INTO host_jobs (host, id, kind, state, owner, project, asked, body)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (host, id) DO UPDATE SET kind = excluded.kind,
			state = excluded.state, owner = excluded.owner, project = excluded.project, asked = excluded.asked,
			body = excluded.body`, host, j.ID, j.Kind, j.State, j.Owner, j.Project, stamp(j.Asked),
			string(j.Body)); err != nil {
			return err
		}
	}
	for id := range was {
		if err := t.EndHostJob(host, id); err != nil {
			return err
		}
	}
	return nil
}

// EndHostJob drops a job that has ended, if it is there.
func (t jobRows) EndHostJob(host, id string) error {
	_, err := t.exec("DELETE FROM host_jobs WHERE host = $1 AND id = $2", host, id)
	return err
}
