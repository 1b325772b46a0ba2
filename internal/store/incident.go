package store

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// incidentRows are the shared records of problems. The feed does not tell of them.
type incidentRows struct{ *sqlTx }

// IncidentWord is a word by which incidents are found.
type IncidentWord struct {
	Kind farm.ConcernKind
	Word string // name or ID
}

// The kinds of words beside those of what an incident concerns: projects and cells that this is in.
const (
	InProject farm.ConcernKind = "in-project"
	InCell    farm.ConcernKind = "in-cell"
)

// IncidentFilter chooses incidents; zero fields choose all.
type IncidentFilter struct {
	Open, Closed bool           // only those
	All          []IncidentWord // it has each of these words
	Any          []IncidentWord // it has one of these; nil: that does not matter
	Since        time.Time      // something was written then or later
	Before       int64          // page: IDs below this one
	Limit        int
}

// IncidentCount is how many incidents there are.
type IncidentCount struct {
	All, Opener int
	Projects    map[string]int // of those that were asked for
}

// WordsOf are all words of what an incident concerns.
func WordsOf(concerns []farm.Concern) (words []IncidentWord) {
	for _, c := range concerns {
		for _, w := range []IncidentWord{{c.Kind, c.Name}, {c.Kind, c.ID}, {InProject, c.Project}, {InCell, c.Cell}} {
			if w.Word != "" {
				words = append(words, w)
			}
		}
	}
	return words
}

func scanIncident(r scanner) (i farm.Incident, err error) {
	var id, revision int64
	var body string
	if err := r.Scan(&id, &revision, &body); err != nil {
		return i, err
	}
	err = decode(body, &i)
	i.ID, i.Revision = id, revision
	return i, err
}

const incidentColumns = "id, revision, body"

// Incident is the one with an ID.
func (t incidentRows) Incident(id int64) (farm.Incident, error) {
	i, err := scanIncident(t.row("SELECT "+incidentColumns+" FROM incidents WHERE id = $1", id))
	return i, found(err, "incident", strconv.FormatInt(id, 10))
}

// Incidents are those that a filter chooses, the newest first.
func (t incidentRows) Incidents(f IncidentFilter) (all []farm.Incident, err error) {
	where, args := f.where()
	args = append(args, f.Limit)
	err = t.each(func(r scanner) error {
		i, err := scanIncident(r)
		all = append(all, i)
		return err
	}, fmt.Sprintf("SELECT "+incidentColumns+" FROM incidents%s ORDER BY id DESC LIMIT $%d", where, len(args)),
		args...)
	return all, err
}

// where is the condition of a filter, and its values.
func (f IncidentFilter) where() (text string, args []any) {
	var conditions []string
	value := func(v any) string {
		args = append(args, v)
		return fmt.Sprintf("$%d", len(args))
	}
	word := func(w IncidentWord) string {
		return "(kind = " + value(string(w.Kind)) + " AND word = " + value(w.Word) + ")"
	}
	having := func(words []string) {
		conditions = append(conditions,
			"id IN (SELECT incident FROM incident_words WHERE "+strings.Join(words, " OR ")+")")
	}
	if f.Open != f.Closed {
		conditions = append(conditions, "closed = "+value(number(f.Closed)))
	}
	if !f.Since.IsZero() {
		conditions = append(conditions, "touched >= "+value(stamp(f.Since)))
	}
	if f.Before != 0 {
		conditions = append(conditions, "id < "+value(f.Before))
	}
	for _, w := range f.All {
		having([]string{word(w)})
	}
	if f.Any != nil {
		words := []string{"1 = 0"}
		for _, w := range f.Any {
			words = append(words, word(w))
		}
		having(words)
	}
	return whereAll(conditions), args
}

// InsertIncident writes a new incident, and returns its ID, which is the next one.
func (t incidentRows) InsertIncident(i farm.Incident) (id int64, err error) {
	if err := t.row("SELECT COALESCE(MAX(id), 0) + 1 FROM incidents").Scan(&id); err != nil {
		return 0, err
	}
	i.ID = id
	body, err := encode(bare(i))
	if err != nil {
		return 0, err
	}
	if _, err := t.exec("INSERT INTO incidents (id, closed, opener, touched, revision, body) VALUES ($1, $2, $3, $4, "+
		"$5, $6)", id, number(i.Closed), i.Opener, stamp(i.Touched), t.revision, body); err != nil {
		return 0, err
	}
	return id, t.putWords(i)
}

// SetIncident writes an incident as it is now. What it concerned, it concerns.
func (t incidentRows) SetIncident(i farm.Incident) error {
	body, err := encode(bare(i))
	if err != nil {
		return err
	}
	n, err := t.exec("UPDATE incidents SET closed = $1, touched = $2, revision = $3, body = $4 WHERE id = $5",
		number(i.Closed), stamp(i.Touched), t.revision, body, i.ID)
	if err := must(n, err, "incident", strconv.FormatInt(i.ID, 10)); err != nil {
		return err
	}
	return t.putWords(i)
}

// bare is an incident without what has a column.
func bare(i farm.Incident) farm.Incident {
	i.ID, i.Revision = 0, 0
	return i
}

func (t incidentRows) putWords(i farm.Incident) error {
	for _, w := range WordsOf(i.Concerns) {
		if _, err := t.exec("INSERT INTO incident_words (kind, word, incident) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
			string(w.Kind), w.Word, i.ID); err != nil {
			return err
		}
	}
	return nil
}

// AddIncidentEntry adds an entry. CodeTaken: there is one with its number.
func (t incidentRows) AddIncidentEntry(id int64, e farm.IncidentEntry) error {
	body, err := encode(e)
	if err != nil {
		return err
	}
	n, err := t.exec("INSERT INTO incident_entries (incident, number, body) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
		id, int64(e.Number), body)
	if err == nil && n == 0 {
		return taken(fmt.Sprintf("incident %d has an entry %d", id, e.Number), "entries are added, and never changed")
	}
	return err
}

// IncidentEntries are all of an incident, the oldest first.
func (t incidentRows) IncidentEntries(id int64) (all []farm.IncidentEntry, err error) {
	err = t.each(func(r scanner) error {
		var body string
		if err := r.Scan(&body); err != nil {
			return err
		}
		var e farm.IncidentEntry
		err := decode(body, &e)
		all = append(all, e)
		return err
	}, "SELECT body FROM incident_entries WHERE incident = $1 ORDER BY number", id)
	return all, err
}

// CountIncidents is how many there are, how many of them somebody opened, and how many concern something in each of
// some projects.
func (t incidentRows) CountIncidents(opener string, projects ...string) (n IncidentCount, err error) {
	n.Projects = map[string]int{}
	if err := t.row("SELECT COUNT(*), (SELECT COUNT(*) FROM incidents WHERE opener = $1) FROM incidents",
		opener).Scan(&n.All, &n.Opener); err != nil {
		return n, err
	}
	for _, project := range projects {
		var of int
		if err := t.row("SELECT COUNT(*) FROM incident_words WHERE kind = $1 AND word = $2", string(InProject),
			project).Scan(&of); err != nil {
			return n, err
		}
		n.Projects[project] = of
	}
	return n, nil
}

// incidentsAtOnce is how many incidents one transaction drops, each with all its entries.
const incidentsAtOnce = 50

// PruneIncidents drops closed incidents to which nothing was added since, some of them at a time. again: there may be
// more. The newest one stays, for its ID must not be used again.
func (t incidentRows) PruneIncidents(since time.Time) (again bool, err error) {
	var ids []any
	err = t.each(func(r scanner) error {
		var id int64
		err := r.Scan(&id)
		ids = append(ids, id)
		return err
	}, "SELECT id FROM incidents WHERE closed = 1 AND touched < $1 AND id < (SELECT MAX(id) FROM incidents) "+
		"ORDER BY id LIMIT $2", stamp(since), incidentsAtOnce)
	for _, id := range ids {
		for _, text := range []string{"DELETE FROM incident_entries WHERE incident = $1",
			"DELETE FROM incident_words WHERE incident = $1", "DELETE FROM incidents WHERE id = $1"} {
			if _, err := t.exec(text, id); err != nil {
				return false, err
			}
		}
	}
	return len(ids) == incidentsAtOnce, err
}
