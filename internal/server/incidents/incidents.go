// Package incidents is the shared record of problems: what each one concerns, and what people have said of it. Entries
// are added, and nobody changes what was said.
package incidents

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
)

// Codes of errors; see docs/errors.md.
const (
	CodeNoIncident    farm.Code = "no-incident"    // no incident of that number
	CodeBadIncident   farm.Code = "bad-incident"   // a title, a text or a time that no incident can have
	CodeIncidentState farm.Code = "incident-state" // it is closed already, or open
	CodeIncidentFull  farm.Code = "incident-full"  // as much as an incident, or the record of all, takes
)

// Incidents are actions on incidents.
type Incidents struct{ actions action.Actions }

// New makes them.
func New(actions action.Actions) *Incidents { return &Incidents{actions} }

// Names are what an incident concerns, as people name it: hosts and VMs by name or ID, rules of the audit, projects and
// cells.
type Names struct{ Hosts, VMs, Findings, Projects, Cells []string }

// Opening is a new incident.
type Opening struct {
	Title    string
	Severity farm.IncidentSeverity // "": minor
	Text     string                // "": none
	Began    time.Time             // zero: now
	Names    Names
	Links    []int64
	Once     string // idempotency key; "": none
}

// Open opens an incident. The caller must have a right to all that it concerns.
func (s *Incidents) Open(ctx context.Context, who farm.Identity, o Opening) (v View, err error) {
	_, err = s.actions.Change(ctx, who, policy.OpenIncident, func(c *action.Call) error {
		key := o.Once
		o := o
		o.Once = ""
		ids, _, err := c.Once(key, o, func() ([]string, error) {
			id, err := open(c, o)
			return []string{strconv.FormatInt(id, 10)}, err
		})
		if err != nil {
			return err
		}
		id, err := strconv.ParseInt(ids[0], 10, 64)
		if err != nil {
			return fmt.Errorf("read a kept answer: %w", err)
		}
		v, err = show(c, id)
		return err
	})
	return v, err
}

func open(c *action.Call, o Opening) (id int64, err error) {
	i, err := begun(o, c.Now)
	if err != nil {
		return 0, err
	}
	i.Opener, i.Touched = c.Caller(), c.Now
	if i.Concerns, err = named(c, o.Names); err != nil {
		return 0, err
	}
	first := places(i)[0]
	first.Owner = ""
	if err := c.May(first); err != nil { // of what was named the caller has it; of nothing perhaps not
		return 0, nothingNamed(err)
	}
	if err := roomForMore(c, i); err != nil {
		return 0, err
	}
	if i.Concerns, _, err = merged(nil, i.Concerns); err != nil {
		return 0, err
	}
	if id, err = c.InsertIncident(i); err != nil {
		return 0, err
	}
	i.ID = id
	if _, err := link(c, &i, o.Links); err != nil {
		return 0, err
	}
	c.Target = targetOf(i, places(i)[0])
	if err := add(c, &i, farm.IncidentEntry{Kind: farm.EntryOpened, Text: text(o.Text), Severity: i.Severity,
		Concerns: i.Concerns, Links: i.Links}); err != nil {
		return 0, err
	}
	return id, c.Did(i.Title)
}

// Note is what somebody says of an incident.
type Note struct {
	Text     string
	Severity farm.IncidentSeverity // "": as it is
	Once     string
}

// Note adds what somebody says. A closed incident takes notes, too. Another severity is for those who may close it.
func (s *Incidents) Note(ctx context.Context, who farm.Identity, id int64, n Note) (View, error) {
	return s.change(ctx, who, policy.NoteIncident, id, func(c *action.Call, i *farm.Incident) error {
		key := n.Once
		n := n
		n.Once = ""
		_, _, err := c.Once(key, []any{id, n}, func() ([]string, error) { return nil, note(c, i, n) })
		return err
	})
}

func note(c *action.Call, i *farm.Incident, n Note) error {
	if err := checkNote(n); err != nil {
		return err
	}
	said := ""
	if n.Severity != "" && n.Severity != i.Severity {
		if err := may(c, policy.CloseIncident, *i); err != nil {
			return err
		}
		said = fmt.Sprintf("severity %s", n.Severity)
		i.Severity = n.Severity
	} else {
		n.Severity = ""
	}
	e := farm.IncidentEntry{Kind: farm.EntryNote, Text: text(n.Text), Severity: n.Severity}
	if err := add(c, i, e); err != nil {
		return err
	}
	return c.Did(said)
}

// Link is what an incident concerns, too.
type Link struct {
	Names Names
	Links []int64 // other incidents
	Text  string
}

// Link adds what an incident concerns, and links to other incidents, which have a link back. What is there already is
// passed over.
func (s *Incidents) Link(ctx context.Context, who farm.Identity, id int64, l Link) (View, error) {
	return s.change(ctx, who, policy.LinkIncident, id, func(c *action.Call, i *farm.Incident) error {
		own := c.Target
		if err := checkText(l.Text); err != nil {
			return err
		}
		more, err := named(c, l.Names)
		if err != nil {
			return err
		}
		all, added, err := merged(i.Concerns, more)
		if err != nil {
			return err
		}
		i.Concerns = all
		links, err := link(c, i, l.Links)
		if err != nil {
			return err
		}
		if len(added)+len(links) == 0 {
			return nothingNew(*i, l)
		}
		c.Target = own
		if err := add(c, i, farm.IncidentEntry{Kind: farm.EntryLinked, Text: text(l.Text), Concerns: added,
			Links: links}); err != nil {
			return err
		}
		return c.Did(words(added, links))
	})
}

// link links an incident to others, and these to it. It returns those that are new.
func link(c *action.Call, i *farm.Incident, ids []int64) (added []int64, err error) {
	for _, id := range ids {
		other, err := find(c, id)
		if err != nil {
			return nil, err
		}
		if err := may(c, policy.LinkIncident, other); err != nil {
			return nil, err
		}
		if linked(i, id) {
			continue
		}
		if err := joined(i, &other); err != nil {
			return nil, err
		}
		if err := add(c, &other, farm.IncidentEntry{Kind: farm.EntryLinked, Links: []int64{i.ID}}); err != nil {
			return nil, err
		}
		added = append(added, id)
	}
	return added, nil
}

// Close closes an incident. ended is when the problem was over; zero: now.
func (s *Incidents) Close(ctx context.Context, who farm.Identity, id, seen int64, said string,
	ended time.Time) (View, error) {
	return s.change(ctx, who, policy.CloseIncident, id, func(c *action.Call, i *farm.Incident) error {
		if err := c.Still(label(i.ID), c.Target, i.Revision, seen); err != nil {
			return err
		}
		if err := closed(i, said, ended, c.Now); err != nil {
			return err
		}
		if err := add(c, i, farm.IncidentEntry{Kind: farm.EntryClosed, Text: text(said), Ended: i.Ended}); err != nil {
			return err
		}
		return c.Did("ended at " + action.When(i.Ended))
	})
}

// Reopen opens a closed incident again.
func (s *Incidents) Reopen(ctx context.Context, who farm.Identity, id, seen int64, said string) (View, error) {
	return s.change(ctx, who, policy.ReopenIncident, id, func(c *action.Call, i *farm.Incident) error {
		if err := c.Still(label(i.ID), c.Target, i.Revision, seen); err != nil {
			return err
		}
		if err := reopened(i, said); err != nil {
			return err
		}
		if err := add(c, i, farm.IncidentEntry{Kind: farm.EntryReopened, Text: text(said)}); err != nil {
			return err
		}
		return c.Did("")
	})
}

// change is an action on an incident that is there.
func (s *Incidents) change(ctx context.Context, who farm.Identity, a policy.Action, id int64,
	do func(*action.Call, *farm.Incident) error) (v View, err error) {
	_, err = s.actions.Change(ctx, who, a, func(c *action.Call) error {
		i, err := find(c, id)
		if err != nil {
			return err
		}
		if err := may(c, a, i); err != nil {
			return err
		}
		if err := do(c, &i); err != nil {
			return err
		}
		v, err = show(c, id)
		return err
	})
	return v, err
}

// find looks an incident up, whatever the caller may do to it.
func find(c *action.Call, id int64) (farm.Incident, error) {
	i, err := c.Incident(id)
	if action.Missing(err) {
		c.Target = policy.Target{Name: label(id)}
		err = &farm.Error{Kind: farm.NotFound, Code: CodeNoIncident, Message: fmt.Sprintf("no incident %d", id),
			Hint: "`grange incident list --state all` shows those that you may see"}
	}
	return i, err
}

// add writes an entry, and the incident as it is with it.
func add(c *action.Call, i *farm.Incident, e farm.IncidentEntry) error {
	if err := roomForEntry(*i, e.Kind); err != nil {
		return err
	}
	i.Entries++
	i.Touched = c.Now
	e.Number, e.Time, e.Who = i.Entries, c.Now, c.Caller()
	if err := c.AddIncidentEntry(i.ID, e); err != nil {
		return err
	}
	return c.SetIncident(*i)
}

// roomForMore refuses one more incident when there are too many.
func roomForMore(c *action.Call, i farm.Incident) error {
	var projects []string
	for _, k := range i.Concerns {
		if k.Project != "" {
			projects = append(projects, k.Project)
		}
	}
	slices.Sort(projects)
	n, err := c.CountIncidents(i.Opener, slices.Compact(projects)...)
	if err != nil {
		return err
	}
	return checkCount(n, i.Opener)
}
