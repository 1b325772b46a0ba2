package serverlab

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// findingsOf are what the audit found on a host: some of it goes with the hardware, some with how hosts were installed.
// A few hosts have not reported an audit.
func findingsOf(n int) (audited bool, found []farm.HostFinding) {
	if n%50 == 49 {
		return false, nil
	}
	for _, f := range []struct {
		is      bool
		finding farm.HostFinding
	}{
		{n/97%len(kinds) == 2, farm.HostFinding{Rule: "governor-slow", Severity: "warning", Places: 1}},
		{n%400 == 0, farm.HostFinding{Rule: "ept-off", Severity: "fault", Places: 1}},
		{n%9 == 0, farm.HostFinding{Rule: "host-swap-in-use", Severity: "warning", Places: 1}},
		{n%7 == 3, farm.HostFinding{Rule: "hugepages-late", Severity: "advice", Places: 2}},
	} {
		if f.is {
			found = append(found, f.finding)
		}
	}
	return true, found
}

// jobs is how many have ended on the hosts of a fleet.
const jobs = 240

// putJobs writes records of jobs that have ended, one each minute up to now.
func putJobs(t *store.Tx, hosts []farm.Host) error {
	if len(hosts) == 0 {
		return nil
	}
	ends := []string{"exit:0", "exit:0", "exit:0", "exit:1", "exit:0", "signal:9", "exit:0", "cancelled", "host-booted"}
	now := time.Now().UTC()
	for n := range jobs {
		h := hosts[n*7%len(hosts)]
		wall := time.Duration(20+n*13%600) * time.Minute
		end := now.Add(-time.Duration(n) * time.Minute)
		u := api.Usage{ID: api.NewID(), Kind: api.UsageJob, Job: api.NewID(), Batch: fmt.Sprint("slurm/", 52000-n),
			User: []string{"ann", "carl", "prod-atlas", "eve"}[n%4], Project: "atlas", Account: "atlas",
			Host: h.Name, Cell: h.Cell,
			Image: "debian-13", Hardware: h.Facts.Kind, Start: end.Add(-wall), End: end, Wall: wall.Seconds(),
			Cores: 8, Memory: 16 << 30, Ended: ends[n%len(ends)], Month: end.Format("2006-01")}
		used := u.Wall * float64(u.Cores) * float64(50+n%50) / 100
		u.CPU = &used
		if n%11 == 5 {
			u.Kind, u.Job, u.Image = api.UsageMetal, "", ""
		} else {
			u.Asked, u.Phases = u.Start.Add(-2*time.Second), someStart(n)
		}
		if n == 0 {
			u.ID = AnEndedJob
		}
		body, err := json.Marshal(u)
		if err != nil {
			return err
		}
		if _, err := t.PutUsage(store.UsageRow{ID: u.ID, Month: u.Month, Ended: u.End, Kind: u.Kind, Owner: u.User,
			Project: u.Project, Account: u.Account, Job: u.Job, Cell: u.Cell, Host: u.Host, Hardware: u.Hardware,
			Cores: u.Cores, Wall: wall, CPU: new(time.Duration(used * float64(time.Second))), Body: body}); err != nil {
			return err
		}
	}
	return nil
}
