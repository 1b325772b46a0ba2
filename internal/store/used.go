package store

import (
	"database/sql"
	"errors"

	"github.com/grange-project/grange/internal/farm"
)

// sums are a farm.Quota. PostgreSQL adds BIGINTs up to what is none.
const sums = `COUNT(*), CAST(COALESCE(SUM(cpus), 0) AS BIGINT), CAST(COALESCE(SUM(memory), 0) AS BIGINT),
	CAST(COALESCE(SUM(scratch), 0) AS BIGINT)`

// heldBy is what one VM's row counts for in its project: nothing when it is to be deleted.
const heldBy = "1 - deleting, cpus * (1 - deleting), memory * (1 - deleting), scratch * (1 - deleting)"

// holds is heldBy of a row to come.
func holds(v farm.VM) farm.Quota {
	if v.Wanted.Power == farm.PowerDeleted {
		return farm.Quota{}
	}
	return farm.Quota{VMs: 1, CPUs: int(cpus(v)), Memory: farm.Bytes(memory(v)), Scratch: v.Shape.DiskSpace()}
}

func plus(a, b farm.Quota) farm.Quota {
	return farm.Quota{VMs: a.VMs + b.VMs, CPUs: a.CPUs + b.CPUs, Memory: a.Memory + b.Memory,
		Scratch: a.Scratch + b.Scratch}
}

func minus(a, b farm.Quota) farm.Quota {
	return plus(a, farm.Quota{VMs: -b.VMs, CPUs: -b.CPUs, Memory: -b.Memory, Scratch: -b.Scratch})
}

// uses notes that the VMs of a project hold more than before, or less. It is written when the transaction ends, once
// for all that is committed together.
func (t vmRows) uses(project string, more farm.Quota) {
	if t.used == nil {
		t.used = map[string]farm.Quota{}
	}
	t.used[project] = plus(t.used[project], more)
}

// writeUsed writes what some Txs of one transaction noted. The last of them writes.
func writeUsed(txs []*Tx) error {
	all := map[string]farm.Quota{}
	for _, t := range txs {
		for project, more := range t.used {
			all[project] = plus(all[project], more)
		}
	}
	for project, more := range all {
		if more == (farm.Quota{}) {
			continue
		}
		_, err := txs[len(txs)-1].execute(`INSERT INTO used (project, vms, cpus, memory, scratch) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (project) DO UPDATE SET vms = used.vms + excluded.vms, cpus = used.cpus + excluded.cpus,
			memory = used.memory + excluded.memory, scratch = used.scratch + excluded.scratch`,
			[]any{project, more.VMs, more.CPUs, int64(more.Memory), int64(more.Scratch)})
		if err != nil {
			return err
		}
	}
	return nil
}

// Used is what VMs of a project hold that are not to be deleted.
func (t vmRows) Used(project string) (q farm.Quota, err error) {
	err = t.row("SELECT vms, cpus, memory, scratch FROM used WHERE project = $1", project).Scan(&q.VMs, &q.CPUs,
		&q.Memory, &q.Scratch)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return q, err
	}
	for _, o := range t.shared.written {
		q = plus(q, o.used[project])
	}
	return plus(q, t.used[project]), nil
}

// recountUsed adds all up anew: a release that knew no sums may have written beside this one.
func (t vmRows) recountUsed() error {
	if _, err := t.exec("DELETE FROM used"); err != nil {
		return err
	}
	_, err := t.exec("INSERT INTO used SELECT project, " + sums + " FROM vms WHERE deleting = 0 GROUP BY project")
	return err
}

// UsedCells is what VMs in each cell hold that are not to be deleted; "": those in none yet. It reads all VMs.
func (t vmRows) UsedCells() (map[string]farm.Quota, error) {
	used := usedBy{}
	err := t.each(used.read, "SELECT cell, "+sums+" FROM vms WHERE deleting = 0 GROUP BY cell")
	return used, err
}

// UsedHosts is what VMs hold on each of some hosts, by the host's ID, those to be deleted too.
func (t vmRows) UsedHosts(hosts []farm.Host) (map[string]farm.Quota, error) {
	used := usedBy{}
	// its index wants to hear that it is not ''
	err := t.eachOf(hostIDs(hosts), used.read,
		"SELECT host, "+sums+" FROM vms WHERE host <> '' AND host IN (%s) GROUP BY host")
	return used, err
}

// usedBy is what VMs hold, by where they are.
type usedBy map[string]farm.Quota

func (u usedBy) read(r scanner) error {
	var by string
	var q farm.Quota
	err := r.Scan(&by, &q.VMs, &q.CPUs, &q.Memory, &q.Scratch)
	u[by] = q
	return err
}
