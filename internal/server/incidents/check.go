package incidents

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// Bounds of the record.
const (
	MaxTitle    = 200   // letters
	MaxText     = 4000  // letters of an entry
	MaxConcerns = 100   // of an incident
	MaxLinks    = 50    // of an incident
	MaxEntries  = 500   // of an incident
	MaxOpener   = 2000  // incidents of one opener
	MaxProject  = 5000  // incidents that concern something in one project
	MaxAll      = 50000 // incidents
	// MaxSpare incidents an opener may have although there are MaxProject or MaxAll: the openers of these keep nobody
	// from opening one.
	MaxSpare = 100

	// closings are entries that an incident takes beyond MaxEntries: one that is full can be closed.
	closings = 100
	// ahead is how far the clock of who gives a time may be before the server's.
	ahead = 5 * time.Minute
	// maxRule bounds the name of a rule.
	maxRule = 64
)

func bad(hint, format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: CodeBadIncident, Message: fmt.Sprintf(format, args...), Hint: hint}
}

func full(hint, format string, args ...any) error {
	return &farm.Error{Kind: farm.Conflict, Code: CodeIncidentFull, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// text is what somebody wrote as it is kept: a form of a browser ends lines in two bytes.
func text(said string) string { return strings.TrimSpace(strings.ReplaceAll(said, "\r\n", "\n")) }

// checkText refuses what no entry takes.
func checkText(said string) error {
	said = text(said)
	if n := utf8.RuneCountInString(said); n > MaxText {
		return bad("put it where others can read it, and write where that is", "a text of %d letters; at most %d", n,
			MaxText)
	}
	odd := func(r rune) bool { return r != '\n' && r != '\t' && (!unicode.IsPrint(r) || r == utf8.RuneError) }
	if at := strings.IndexFunc(said, odd); at >= 0 {
		r, _ := utf8.DecodeRuneInString(said[at:])
		return bad("write letters, spaces and ends of lines", "a text with the character %U", r)
	}
	return nil
}

func checkNote(n Note) error {
	if text(n.Text) == "" {
		return bad("write what you have seen or done", "an empty note")
	}
	if n.Severity != "" {
		if err := checkSeverity(n.Severity); err != nil {
			return err
		}
	}
	return checkText(n.Text)
}

func checkSeverity(s farm.IncidentSeverity) error {
	if slices.Contains(farm.IncidentSeverities, s) {
		return nil
	}
	var all []string
	for _, s := range farm.IncidentSeverities {
		all = append(all, string(s))
	}
	return bad("write "+strings.Join(all, ", "), "invalid severity %.40q", s)
}

// begun is a new incident, without what it concerns.
func begun(o Opening, now time.Time) (farm.Incident, error) {
	i := farm.Incident{Title: strings.TrimSpace(o.Title), Opened: now,
		Severity: cmp.Or(o.Severity, farm.SeverityMinor), Began: o.Began.UTC()}
	if o.Began.IsZero() {
		i.Began = now
	}
	switch n := utf8.RuneCountInString(i.Title); {
	case n == 0:
		return i, bad("say in one line what is wrong", "an incident without a title")
	case n > MaxTitle:
		return i, bad("say the rest in the text", "a title of %d letters; at most %d", n, MaxTitle)
	case farm.Printable(i.Title) != i.Title:
		return i, bad("say the rest in the text", "the title is not one line of letters: %.80q", i.Title)
	case i.Began.After(now.Add(ahead)):
		return i, bad("say when it began, if it has", "a problem that begins at %s", stamp(i.Began))
	}
	if err := checkSeverity(i.Severity); err != nil {
		return i, err
	}
	return i, checkText(o.Text)
}

// closed closes an incident whose problem ended at a time; zero: now.
func closed(i *farm.Incident, said string, ended, now time.Time) error {
	if ended.IsZero() {
		ended = now
	}
	switch {
	case i.Closed:
		return &farm.Error{Kind: farm.Conflict, Code: CodeIncidentState,
			Message: fmt.Sprintf("incident %d is closed", i.ID), Hint: "a closed incident takes notes, too"}
	case ended.After(now.Add(ahead)):
		return bad("close it when it is over", "a problem that ends at %s", stamp(ended))
	case ended.Before(i.Began):
		return bad("say when it was over", "the problem began at %s, and is to have ended at %s", stamp(i.Began),
			stamp(ended))
	}
	i.Closed, i.Ended = true, ended.UTC()
	return checkText(said)
}

// reopened opens a closed incident again.
func reopened(i *farm.Incident, said string) error {
	if !i.Closed {
		return &farm.Error{Kind: farm.Conflict, Code: CodeIncidentState,
			Message: fmt.Sprintf("incident %d is open", i.ID), Hint: "add a note to it"}
	}
	i.Closed, i.Ended = false, time.Time{}
	return checkText(said)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// merged is what an incident concerns with more of it, and what is new. A thing that is named again is there as it is
// now: a VM may have got a cell.
func merged(has, more []farm.Concern) (all, added []farm.Concern, err error) {
	all = slices.Clone(has)
	for _, k := range more {
		same := func(o farm.Concern) bool {
			return o.Kind == k.Kind && o.ID == k.ID && (k.ID != "" || o.Name == k.Name)
		}
		switch at := slices.IndexFunc(all, same); {
		case at < 0:
			all, added = append(all, k), append(added, k)
		case all[at] != k:
			all[at] = k
			added = append(added, k)
		}
	}
	if len(all) > MaxConcerns {
		return nil, nil, full("name their cell or their project", "an incident that concerns %d things; at most %d",
			len(all), MaxConcerns)
	}
	return all, added, nil
}

func linked(i *farm.Incident, id int64) bool { return slices.Contains(i.Links, id) }

// joined links two incidents to each other.
func joined(i, other *farm.Incident) error {
	if i.ID == other.ID {
		return bad("name another one", "incident %d is to be linked to itself", i.ID)
	}
	for _, one := range []*farm.Incident{i, other} {
		if len(one.Links) >= MaxLinks {
			return full("link it to one that is linked to it", "incident %d has %d links to others; at most %d", one.ID,
				len(one.Links), MaxLinks)
		}
	}
	i.Links, other.Links = append(i.Links, other.ID), append(other.Links, i.ID)
	return nil
}

// nothingNew refuses to link an incident to nothing. What it concerns already may be named again, with nothing to say.
func nothingNew(i farm.Incident, l Link) error {
	n := l.Names
	switch {
	case len(n.Hosts)+len(n.VMs)+len(n.Findings)+len(n.Projects)+len(n.Cells)+len(l.Links) == 0:
		return bad("name a host, a VM, a finding, a project, a cell or another incident",
			"incident %d is to be linked to nothing", i.ID)
	case text(l.Text) != "":
		return bad("add a note to it", "incident %d concerns all of that already", i.ID)
	}
	return nil
}

// roomForEntry refuses entries beyond what an incident takes.
func roomForEntry(i farm.Incident, kind farm.IncidentEntryKind) error {
	most := MaxEntries
	if kind == farm.EntryClosed || kind == farm.EntryReopened {
		most += closings
	}
	if i.Entries < most {
		return nil
	}
	return full("open another one, and link the two", "incident %d has %d entries; at most %d", i.ID, i.Entries, most)
}

// checkCount refuses one more incident.
func checkCount(n store.IncidentCount, opener string) error {
	if n.Opener >= MaxOpener {
		return full("add a note to one that is there", "%s has opened %d incidents; at most %d", opener, n.Opener,
			MaxOpener)
	}
	if n.Opener < MaxSpare {
		return nil
	}
	const goes = "closed ones go three years after their last entry"
	for project, of := range n.Projects {
		if of >= MaxProject {
			return full(goes, "there are %d incidents of project %s, and %s has opened %d; then at most %d of one opener",
				of, project, opener, n.Opener, MaxSpare)
		}
	}
	if n.All >= MaxAll {
		return full(goes, "there are %d incidents, and %s has opened %d; then at most %d of one opener", n.All, opener,
			n.Opener, MaxSpare)
	}
	return nil
}

// checkRule refuses what no rule of the audit is called. Which rules there are a host's agent knows, of any release.
func checkRule(name string) error {
	odd := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }
	if name == "" || len(name) > maxRule || strings.ContainsFunc(name, odd) {
		return bad("`grange tune rules` lists the rules; name one by its ID", "no rule is called %.80q", name)
	}
	return nil
}

// words are what an entry added, for the audit log.
func words(concerns []farm.Concern, links []int64) string {
	var all []string
	for _, k := range concerns {
		all = append(all, string(k.Kind)+" "+k.Name)
	}
	for _, id := range links {
		all = append(all, label(id))
	}
	return farm.Enumerate(all)
}
