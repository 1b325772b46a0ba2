package incidents

import (
	"context"
	"slices"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// View is an incident as its reader may see it.
type View struct {
	farm.Incident                      // with those concerns alone that the reader may see
	Hidden        int                  // how many others there are
	Said          []farm.IncidentEntry // of one that was asked for; the oldest first
	Linked        []Linked
	MayNote       bool
	MayClose      bool // or reopen
}

// Linked is an incident to which another one is linked.
type Linked struct {
	ID     int64
	Title  string // "": the reader may not read it
	Closed bool
}

// Get returns one incident with all its entries.
func (s *Incidents) Get(ctx context.Context, who farm.Identity, id int64) (v View, err error) {
	err = s.actions.Look(ctx, who, policy.ReadIncident, func(c *action.Call) error {
		v, err = show(c, id)
		return err
	})
	return v, err
}

// show is an incident with all its entries, if the caller may read it.
func show(c *action.Call, id int64) (View, error) {
	i, err := find(c, id)
	if err != nil {
		return View{}, err
	}
	if !reads(c, i) {
		return View{}, hidden(c, id)
	}
	v := brief(c, i)
	for _, id := range i.Links {
		other, err := c.Incident(id)
		switch {
		case action.Missing(err): // it was closed long ago, and dropped
			continue
		case err != nil:
			return View{}, err
		case reads(c, other):
			v.Linked = append(v.Linked, Linked{id, other.Title, other.Closed})
		default:
			v.Linked = append(v.Linked, Linked{ID: id})
		}
	}
	v.Said, err = c.IncidentEntries(id)
	for n := range v.Said {
		v.Said[n].Concerns = seen(c, v.Said[n].Concerns)
	}
	return v, err
}

// brief is an incident without its entries.
func brief(c *action.Call, i farm.Incident) View {
	v := View{Incident: i, MayNote: allowed(c, policy.NoteIncident, i), MayClose: allowed(c, policy.CloseIncident, i)}
	v.Concerns = seen(c, i.Concerns)
	v.Hidden = len(i.Concerns) - len(v.Concerns)
	return v
}

// seen are those of the things that the caller may see.
func seen(c *action.Call, all []farm.Concern) []farm.Concern {
	return slices.DeleteFunc(slices.Clone(all), func(k farm.Concern) bool { return !sees(c, k) })
}

// Filter chooses incidents; zero fields choose all.
type Filter struct {
	Open, Closed                     bool // only those
	Host, VM, Finding, Project, Cell string
	Since                            time.Time // something was added then or later
	Before                           int64     // page: older than this one
	Limit                            int
}

func (f Filter) words() (all []store.IncidentWord) {
	for _, w := range []store.IncidentWord{{Kind: farm.ConcernHost, Word: f.Host}, {Kind: farm.ConcernVM, Word: f.VM},
		{Kind: farm.ConcernFinding, Word: f.Finding}, {Kind: store.InProject, Word: f.Project},
		{Kind: store.InCell, Word: f.Cell}} {
		if w.Word != "" {
			all = append(all, w)
		}
	}
	return all
}

// chosen reports whether what the caller may see of an incident has all words: that it concerns a thing which the
// caller may not see is not to be found out by asking for that.
func chosen(seen []farm.Concern, words []store.IncidentWord) bool {
	has := store.WordsOf(seen)
	return !slices.ContainsFunc(words, func(w store.IncidentWord) bool { return !slices.Contains(has, w) })
}

// Bounds of a page.
const (
	usualPage = 100
	mostPage  = 1000
)

// List returns those that a filter chooses and the caller may read, the newest first, without their entries, and
// whether there are older ones.
func (s *Incidents) List(ctx context.Context, who farm.Identity, f Filter) (views []View, more bool, err error) {
	limit := f.Limit
	if limit <= 0 {
		limit = usualPage
	}
	limit = min(limit, mostPage)
	err = s.actions.Look(ctx, who, policy.ReadIncident, func(c *action.Call) error {
		views, more = nil, false
		q := store.IncidentFilter{Open: f.Open, Closed: f.Closed, All: f.words(), Any: within(who, c.Grants),
			Since: f.Since, Before: f.Before, Limit: limit + 1}
		for {
			all, err := c.Incidents(q)
			if err != nil {
				return err
			}
			for _, i := range all {
				q.Before = i.ID
				v := brief(c, i)
				switch {
				case !reads(c, i) || !chosen(v.Concerns, q.All):
				case len(views) == limit:
					more = true
					return nil
				default:
					views = append(views, v)
				}
			}
			if len(all) < q.Limit {
				return nil
			}
		}
	})
	return views, more, err
}
