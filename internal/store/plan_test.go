package store

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// TestPlans: SQLite finds what is asked for often by an index that fits, and not by reading all. Where two fit it takes
// the one that gives the order.
func TestPlans(t *testing.T) {
	s, some := inside(t), []farm.Host{{ID: "a"}}
	all := UsageSight{All: true}
	for name, c := range map[string]struct {
		ask  func(*Tx) error
		want string
	}{
		"grants of a user": {func(tx *Tx) error { _, err := tx.Grants("ann"); return err },
			"INDEX objects_owner (kind=? AND owner=?)"},
		"strangers of a host": {func(tx *Tx) error { _, err := tx.Orphans("h"); return err },
			"INDEX objects_owner (kind=? AND owner=?)"},
		"streams of a host": {func(tx *Tx) error { _, err := tx.Streams("h"); return err },
			"INDEX objects_owner (kind=? AND owner=?)"},
		"a session": {func(tx *Tx) error { _, err := tx.Session("s"); return ignoreAbsent(err) }, "(id=?)"},
		"sessions of a user": {func(tx *Tx) error { _, err := tx.Sessions("ann"); return err },
			"INDEX sessions_person (person=?)"},
		"an address": {func(tx *Tx) error { _, err := tx.AddressLeased("n", "a"); return err },
			"COVERING INDEX vms_address (network=? AND address=?)"},
		"a host name": {func(tx *Tx) error { _, err := tx.NameLeased("n", "a"); return err },
			"COVERING INDEX vms_hostname (network=? AND hostname=?)"},
		"addresses of a network": {func(tx *Tx) error { _, err := tx.LeasedAddresses("n"); return err },
			"COVERING INDEX vms_address (network=?"},
		"names of a network": {func(tx *Tx) error { _, err := tx.LeasedNames("n"); return err },
			"COVERING INDEX vms_hostname (network=?"},
		"what a project holds": {func(tx *Tx) error { _, err := tx.Used("p"); return err }, "(project=?)"},
		"VMs of a group": {func(tx *Tx) error {
			_,
				err := tx.VMs(VMFilter{Project: "p", Group: "g"})
			return err
		}, "INDEX vms_group (project=? AND grp=?)"},
		"a page of a project": {func(tx *Tx) error {
			_,
				err := tx.VMs(VMFilter{Project: "p", After: "p/n", Limit: 3})
			return err
		},
			"INDEX vms_name (project=? AND name>?)"},
		"a page of a cell": {func(tx *Tx) error {
			_,
				err := tx.VMs(VMFilter{Cell: "c", After: "/", Limit: 3})
			return err
		},
			"INDEX vms_name ((project,name)>(?,?))"},
		"a page of a group": {func(tx *Tx) error {
			_, err := tx.VMs(VMFilter{Project: "p", Group: "g", After: "p/n", Limit: 3})
			return err
		}, "(project=? AND grp=? AND name>?)"},
		"a page of a host": {func(tx *Tx) error {
			_, err := tx.VMs(VMFilter{Project: "p", Host: "h", After: "p/n", Limit: 3})
			return err
		}, "INDEX"},
		"a VM by its name": {func(tx *Tx) error { _, err := tx.VMNamed("p", "n"); return ignoreAbsent(err) },
			"INDEX vms_name (project=? AND name=?)"},
		"strangers of hosts": {func(tx *Tx) error { _, err := tx.OrphansOf(some); return err },
			"INDEX objects_owner (kind=? AND owner=?)"},
		"what hosts have": {func(tx *Tx) error { _, err := tx.UsedHosts(some); return err },
			"INDEX vms_host (host=?)"},
		"facts of hosts": {func(tx *Tx) error { return tx.AddFacts(some) }, "(id=?)"},
		"hosts of VMs":   {func(tx *Tx) error { _, err := tx.HostsBriefOf([]string{"a"}); return err }, "(id=?)"},
		"a page of hosts": {func(tx *Tx) error { _, err := tx.HostsBriefAfter("", "a", 3); return err },
			"INDEX hosts_name (name>?)"},
		"jobs": {func(tx *Tx) error {
			_, err := tx.Jobs(JobFilter{Sees: all, Before: time.Unix(9, 0), BeforeID: "j", Limit: 3})
			return err
		},
			"INDEX host_jobs_asked (asked<?)"},
		"a job": {func(tx *Tx) error { _, err := tx.JobsCalled("a", all); return err }, "INDEX host_jobs_id (id=?)"},
		"ended jobs of a person": {func(tx *Tx) error {
			_, err := tx.RecentUsage(UsageRecent{Owner: "o", Kinds: []string{"job"}, Since: time.Unix(1, 0),
				Before: time.Unix(9, 0), BeforeID: "j", Sees: all, Limit: 3})
			return err
		}, "INDEX usage_owner (owner=? AND ended>? AND ended<?)"},
		"ended jobs of a host": {func(tx *Tx) error {
			_, err := tx.RecentUsage(UsageRecent{Host: "h", Kinds: []string{"job"}, Since: time.Unix(1, 0), Sees: all,
				Limit: 3})
			return err
		}, "INDEX usage_host (host=? AND ended>?)"},
		"changes of findings": {func(tx *Tx) error { _, err := tx.FindingChanges(time.Unix(1, 0), 3); return err },
			"INDEX finding_changes_at (at>?)"},
		"hosts by name or ID": {func(tx *Tx) error { _, err := tx.HostsCalled([]string{"a"}); return err }, "=?)"},
	} {
		for _, text := range asked(t, s, c.ask) {
			if plan := s.plan(t, text); !strings.Contains(plan, c.want) || strings.Contains(plan, "B-TREE") ||
				strings.Contains(plan, "SCAN") {
				t.Errorf("%s: %s\n  %s, not %s", name, text, plan, c.want)
			}
		}
	}
}

// asked are the texts of what a transaction asks.
func asked(t *testing.T, s *Store, ask func(*Tx) error) (texts []string) {
	t.Helper()
	err := s.View(t.Context(), func(tx *Tx) error {
		clear(tx.shared.prepared)
		err := ask(tx)
		for text := range tx.shared.prepared {
			texts = append(texts, text)
		}
		return err
	})
	if err != nil || len(texts) == 0 {
		t.Fatal(texts, err)
	}
	return texts
}

// plan is how SQLite would find the rows.
func (s *Store) plan(t *testing.T, text string) string {
	t.Helper()
	rows, err := s.read.Query("EXPLAIN QUERY PLAN "+text, slices.Repeat([]any{"a"}, atOnce)...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		all = append(all, detail)
	}
	return strings.Join(all, "; ")
}

func ignoreAbsent(err error) error {
	if e, ok := err.(*farm.Error); ok && e.Code == CodeAbsent {
		return nil
	}
	return err
}
