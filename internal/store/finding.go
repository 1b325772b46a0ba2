package store

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// findingRows are changes of what audits of hosts find. The feed does not tell of them.
type findingRows struct{ *sqlTx }

// FindingChange is a finding that a host has from then on, or has not any more.
type FindingChange struct {
	Host    string // ID
	At      time.Time
	Rule    string // "": the host was audited for the first time
	Came    bool
	Updated bool // with another release of grange
}

// findingChanges is how many changes are kept of a host: the newest ones.
const findingChanges = 500

// AddFindingChanges adds changes of one host.
func (t findingRows) AddFindingChanges(all []FindingChange) error {
	for _, c := range all {
		if _, err := t.exec("INSERT INTO finding_changes (host, at, rule, came, updated) VALUES ($1, $2, $3, $4, $5) "+
			"ON CONFLICT DO NOTHING", c.Host, stamp(c.At), c.Rule, number(c.Came), number(c.Updated)); err != nil {
			return err
		}
	}
	if len(all) == 0 {
		return nil
	}
	_, err := t.exec("DELETE FROM finding_changes WHERE host = $1 AND at < (SELECT at FROM finding_changes "+
		"WHERE host = $2 ORDER BY at DESC LIMIT 1 OFFSET $3)", all[0].Host, all[0].Host, findingChanges-1)
	return err
}

// FindingChanges are those since a time, the oldest first; limit are the newest of them.
func (t findingRows) FindingChanges(since time.Time, limit int) (all []FindingChange, err error) {
	err = t.each(func(r scanner) error {
		var c FindingChange
		var at, came, updated int64
		err := r.Scan(&c.Host, &at, &c.Rule, &came, &updated)
		c.At, c.Came, c.Updated = unstamp(at), came != 0, updated != 0
		all = append(all, c)
		return err
	}, "SELECT host, at, rule, came, updated FROM finding_changes WHERE at >= $1 ORDER BY at DESC LIMIT $2",
		stamp(since), limit)
	slices.SortFunc(all, func(a, b FindingChange) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Host, b.Host), strings.Compare(a.Rule, b.Rule))
	})
	return all, err
}

// PruneFindings drops changes from before a time, some of them at once. again: there may be more.
func (t findingRows) PruneFindings(before time.Time) (again bool, err error) {
	n, err := t.exec("DELETE FROM finding_changes WHERE (host, at, rule) IN (SELECT host, at, rule FROM finding_changes "+
		"WHERE at < $1 ORDER BY at LIMIT $2)", stamp(before), pruneAtOnce)
	return n == pruneAtOnce, err
}
