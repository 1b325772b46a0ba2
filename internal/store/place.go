package store

import (
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// placeRows are the stays of VMs on hosts: the present ones are in the rows of the VMs, and those before in a table.
// The feed does not tell of them.
type placeRows struct{ *sqlTx }

// Place is one stay of a VM on a host.
type Place struct {
	Since, Until   time.Time // zero: not known since when; it is still there
	Project, Owner string
	CPUs           int // the most that it had there
}

// Places are the stays of a VM on a host, the earliest first.
func (t placeRows) Places(vm, host string) (all []Place, err error) {
	err = t.each(func(r scanner) error {
		var p Place
		var since, until int64
		err := r.Scan(&since, &until, &p.Project, &p.Owner, &p.CPUs)
		p.Since, p.Until = unstamp(since), unstamp(until)
		all = append(all, p)
		return err
	}, `SELECT since, until, project, owner, cpus FROM places WHERE vm = $1 AND host = $2 UNION ALL
		SELECT placed, 0, project, owner, CASE WHEN most_cpus < cpus THEN cpus ELSE most_cpus END FROM vms
		WHERE id = $1 AND host = $2 ORDER BY 1, 2 DESC`, vm, host)
	return all, err
}

// PrunePlaces drops stays that ended before a time, some of them at once. again: there may be more.
func (t placeRows) PrunePlaces(before time.Time) (again bool, err error) {
	n, err := t.exec("DELETE FROM places WHERE (vm, host, since) IN (SELECT vm, host, since FROM places WHERE until < $1 "+
		"ORDER BY until LIMIT $2)", stamp(before), pruneAtOnce)
	return n == pruneAtOnce, err
}

// stay is where a VM is, as its row has it.
type stay struct {
	id, host, project, owner string
	placed, cpus             int64
}

// left writes a stay that ends now. A stay that follows another one of the VM on that host within a minute goes on with
// its row: a host that refuses a VM gets it again.
func (t vmRows) left(s stay) error {
	if s.host == "" {
		return nil
	}
	until := stamp(t.store.clock())
	n, err := t.exec(`UPDATE places SET until = $1, project = $2, owner = $3,
		cpus = CASE WHEN cpus < $4 THEN $4 ELSE cpus END WHERE vm = $5 AND host = $6 AND until >= $7 AND until <= $1`,
		until, s.project, s.owner, s.cpus, s.id, s.host, s.placed-int64(time.Minute))
	if err != nil || n > 0 {
		return err
	}
	_, err = t.exec(`INSERT INTO places (vm, host, since, until, project, owner, cpus)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`, s.id, s.host, s.placed, until, s.project, s.owner,
		s.cpus)
	return err
}

// placed is when a VM that is inserted got its host; 0: it has none.
func (t vmRows) placed(v farm.VM) int64 {
	if v.Host == "" {
		return 0
	}
	return stamp(t.store.clock())
}
