package hostlink

import (
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// writeFacts writes what a host says of itself, and what its audit finds that it had not found, or finds no more. An
// agent that was just started has not audited its host yet: what was found before stands until then.
func writeFacts(t *store.Tx, id string, f farm.Facts, now time.Time) error {
	old, err := t.Host(id)
	if err != nil {
		return err
	}
	if !f.Audited {
		f.Audited, f.Findings = old.Facts.Audited, old.Facts.Findings
	} else if err := t.AddFindingChanges(auditChanges(id, old.Facts, f, now)); err != nil {
		return err
	}
	if counted := counted(old.Threads, f.Topology.Online.Len()); counted != old.Threads {
		old.Threads = counted
		if err := t.SetHost(old); err != nil {
			return err
		}
	}
	return t.SetHostFacts(id, f)
}

// counted are the threads of a host that reports so many.
func counted(t farm.Threads, now int) farm.Threads {
	if t.First == 0 {
		t.First = now
	}
	t.Most = max(t.Most, now)
	return t
}

// auditChanges are the rules of which a host has findings and had none, or had some and has none. Its first audit is
// one change, whatever it finds.
func auditChanges(host string, old, now farm.Facts, at time.Time) (all []store.FindingChange) {
	if !old.Audited {
		return []store.FindingChange{{Host: host, At: at, Came: true}}
	}
	had, has := rulesOf(old), rulesOf(now)
	change := func(rules, others map[string]bool, came bool) {
		for rule := range rules {
			if !others[rule] {
				all = append(all, store.FindingChange{Host: host, At: at, Rule: rule, Came: came,
					Updated: old.Version != now.Version})
			}
		}
	}
	change(has, had, true)
	change(had, has, false)
	return all
}

func rulesOf(f farm.Facts) map[string]bool {
	rules := map[string]bool{}
	for _, found := range f.Findings {
		rules[found.Rule] = true
	}
	return rules
}
