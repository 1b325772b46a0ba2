package action

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/store"
)

// Unchanged holds the revision that a caller has seen of a VM against the last one at which people wanted something
// else of it. What its host reported meanwhile is no conflict.
func (c *Call) Unchanged(vm farm.VM, seen int64) error {
	return c.Still("VM "+Label(vm), VMTarget(vm), vm.Changed, seen)
}

// Absent is the revision that a caller has seen who creates something: there was none.
const Absent = -1

// Still is unchanged for whatever has a revision of its own; what names it for people, has is 0 where there is none.
func (c *Call) Still(what string, target policy.Target, has, seen int64) error {
	if seen == Absent {
		return absent(what, has)
	}
	if seen == 0 || has != 0 && has <= seen {
		return nil
	}
	said, _ := c.meanwhile(target, seen)
	return changedSince(what, seen, said)
}

// absent refuses to create what exists.
func absent(what string, has int64) error {
	if has == 0 {
		return nil
	}
	return &farm.Error{Kind: farm.Conflict, Code: CodeExists, Message: what + " exists already",
		Hint: "choose another name, or replace it: `--replace`, or the same request without If-None-Match"}
}

func changedSince(what string, seen int64, said string) error {
	return &farm.Error{Kind: farm.Conflict, Code: CodeChanged,
		Message: fmt.Sprintf("%s was changed since revision %d%s", what, seen, said),
		Hint:    "look at it again, and decide"}
}

// StillHost is still for a host. Its row changes with each report that has something new, which is no conflict: what
// people did to it is in the audit log. Where that is too long to be searched, they may have.
func (c *Call) StillHost(h farm.Host, seen int64) error {
	if seen == 0 || h.Revision <= seen {
		return nil
	}
	said, all := c.meanwhile(HostTarget(h), seen)
	if said == "" && all {
		return nil
	}
	return changedSince("host "+h.Name, seen,
		cmp.Or(said, ", or may have been: too much was done in the fleet since to tell"))
}

// LookBack is how many entries of a project, or of none, are searched for what changed, a page at a time.
const (
	LookBack = 2000
	lookPage = 200
)

// nobodys are what the audit log has of a host that nobody did.
var nobodys = []policy.Action{SilentHost, BackHost, RenewHost}

// meanwhile returns who changed what after a revision, by the audit log: "; at 17: ann, vm.stop". all is false when the
// log was not searched so far back.
func (c *Call) meanwhile(target policy.Target, after int64) (text string, all bool) {
	var said []string
	var last int64
	project, name := cmp.Or(target.Project, store.NoProject), shown(target.String(), maxTarget)
	for range LookBack / lookPage {
		entries, err := c.Entries(project, "", last, lookPage)
		if err != nil {
			return "", false
		}
		for _, e := range entries {
			if e.Revision <= after {
				return strings.Join(said, ""), true
			}
			if last = e.ID; e.Target == name && e.Outcome == Done &&
				!slices.Contains(nobodys, policy.Action(e.Action)) {
				said = append(said, strings.TrimSuffix(fmt.Sprintf("; at %d: %s, %s, %s", e.Revision, e.Who, e.Action,
					e.Reason), ", "))
			}
		}
		if len(entries) < lookPage {
			return strings.Join(said, ""), true
		}
	}
	return strings.Join(said, ""), false
}
