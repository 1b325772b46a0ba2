package server

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// The kinds of FarmChange.
const (
	kindSettings = "settings"
	kindMaxima   = "maxima"
	kindProject  = "project"
	kindCell     = "cell"
	kindShape    = "shape"
	kindNetwork  = "network"
	kindGroup    = "group"
	kindUser     = "user"
	kindGrant    = "grant"
)

func cellName(c farm.FarmCell) string        { return c.Name }
func projectName(p farm.Project) string      { return p.Name }
func shapeName(s farm.Shape) string          { return s.Name }
func networkName(n farm.FleetNetwork) string { return n.Name }
func userName(u farm.User) string            { return u.Name }
func groupName(g farm.ServerGroup) string    { return g.Project + "/" + g.Name }

func groupParts(name string) (project, group string) {
	project, group, _ = strings.Cut(name, "/")
	return project, group
}

// named is the one of a name; the zero value where there is none.
func named[T any](list []T, name string, of func(T) string) (v T) {
	if i := slices.IndexFunc(list, func(t T) bool { return of(t) == name }); i >= 0 {
		v = list[i]
	}
	return v
}

// byName finds many of them.
func byName[T any](list []T, of func(T) string) map[string]T {
	m := make(map[string]T, len(list))
	for _, v := range list {
		m[of(v)] = v
	}
	return m
}

func hasName[T any](list []T, name string, of func(T) string) bool {
	return slices.ContainsFunc(list, func(t T) bool { return of(t) == name })
}

// diff is the farm as want leaves it, and what changes on the way there, in an order in which it can be done. It reads
// and writes nothing. have has all lists; those that want lacks stay, and with prune those that it has lose what they
// lack. The error is a *farm.Error of farm.CodeBadFarm.
func diff(have, want farm.Farm, prune bool) (after farm.Farm, changes []FarmChange, err error) {
	if err := once(want); err != nil {
		return after, nil, err
	}
	after = farm.Farm{
		Cells:    wantedOf(have.Cells, cellsAsTheyAre(have.Cells, want.Cells), cellName, prune),
		Projects: wantedOf(have.Projects, want.Projects, projectName, prune),
		Shapes:   wantedOf(have.Shapes, want.Shapes, shapeName, prune),
		Networks: wantedOf(have.Networks, want.Networks, networkName, prune),
		Groups:   wantedOf(have.Groups, want.Groups, groupName, prune),
		Users:    wantedOf(have.Users, want.Users, userName, prune),
		Grants:   wantedOf(have.Grants, want.Grants, farm.Grant.String, prune),
		Settings: cmp.Or(want.Settings, have.Settings), Maxima: cmp.Or(want.Maxima, have.Maxima),
	}
	goWith(&after, have, want)
	if err := sound(after); err != nil {
		return after, nil, err
	}
	made, gone := []FarmChange{}, []FarmChange{}
	add := func(m, g []FarmChange) { made, gone = append(made, m...), append(g, gone...) }
	add(changed(kindSettings, []farm.Settings{*have.Settings}, []farm.Settings{*after.Settings},
		func(farm.Settings) string { return "" }, settingsFields))
	add(changed(kindMaxima, []farm.Maxima{*have.Maxima}, []farm.Maxima{*after.Maxima},
		func(farm.Maxima) string { return "" }, maximaFields))
	add(changed(kindProject, have.Projects, after.Projects, projectName, projectFields))
	add(changed(kindCell, have.Cells, after.Cells, cellName, cellFields))
	add(changed(kindShape, have.Shapes, after.Shapes, shapeName, shapeFields))
	add(changed(kindNetwork, have.Networks, after.Networks, networkName, networkFields))
	add(changed(kindGroup, have.Groups, after.Groups, groupName, groupFields))
	add(changed(kindUser, have.Users, after.Users, userName, userFields))
	add(changed(kindGrant, have.Grants, after.Grants, farm.Grant.String, func(farm.Grant) []field { return nil }))
	return after, slices.Concat(gone, made), nil
}

// wantedOf is what there is with what is wanted in its place.
func wantedOf[T any](have, want []T, name func(T) string, prune bool) []T {
	if want == nil {
		return have
	}
	after, mentioned := slices.Clone(want), byName(want, name)
	for _, h := range have {
		if _, ok := mentioned[name(h)]; !prune && !ok {
			after = append(after, h)
		}
	}
	slices.SortFunc(after, func(a, b T) int { return cmp.Compare(name(a), name(b)) })
	return after
}

// cellsAsTheyAre gives wanted cells what a file does not say of them: their drains, and whether they are open where it
// does not mention it.
func cellsAsTheyAre(have, want []farm.FarmCell) []farm.FarmCell {
	if want == nil {
		return nil
	}
	out := []farm.FarmCell{}
	for _, w := range want {
		h := named(have, w.Name, cellName)
		w.Cell = w.WithDefaults()
		w.Drain = h.Drain
		switch {
		case w.Open == nil:
			w.Closed, w.Reason = h.Closed, h.Reason
		case *w.Open:
			w.Closed, w.Reason = false, ""
		default:
			w.Closed = true
		}
		w.Open = nil
		out = append(out, w)
	}
	return out
}

// goWith takes away what has no meaning without something that goes away: grants in it or of it, and a project's
// groups. What the file itself mentions stays, to be refused.
func goWith(after *farm.Farm, have, want farm.Farm) {
	project, cell, user := lost(have.Projects, after.Projects, projectName), lost(have.Cells, after.Cells,
		cellName), lost(have.Users, after.Users, userName)
	grants, groups := byName(want.Grants, farm.Grant.String), byName(want.Groups, groupName)
	after.Grants = slices.DeleteFunc(slices.Clone(after.Grants), func(g farm.Grant) bool {
		_, wanted := grants[g.String()]
		return !wanted && (project[g.Project] || cell[g.Cell] || user[g.User])
	})
	after.Groups = slices.DeleteFunc(slices.Clone(after.Groups), func(g farm.ServerGroup) bool {
		_, wanted := groups[groupName(g)]
		return !wanted && project[g.Project]
	})
}

// lost are the names that are there, and would not be any more.
func lost[T any](have, after []T, name func(T) string) map[string]bool {
	is, gone := byName(after, name), map[string]bool{}
	for _, h := range have {
		if _, ok := is[name(h)]; !ok {
			gone[name(h)] = true
		}
	}
	return gone
}

// once refuses two objects of one name.
func once(f farm.Farm) error {
	return errors.Join(eachOnce(kindCell, f.Cells, cellName), eachOnce(kindProject, f.Projects, projectName),
		eachOnce(kindShape, f.Shapes, shapeName), eachOnce(kindNetwork, f.Networks, networkName),
		eachOnce(kindGroup, f.Groups, groupName), eachOnce(kindUser, f.Users, userName))
}

func eachOnce[T any](kind string, list []T, name func(T) string) error {
	seen := make(map[string]bool, len(list))
	for _, v := range list {
		if seen[name(v)] {
			return badFarm("%s %s is there twice", kind, name(v))
		}
		seen[name(v)] = true
	}
	return nil
}

func badFarm(format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadFarm, Message: fmt.Sprintf(format, args...),
		Hint: "docs/guide/cells.md explains every key; nothing was changed"}
}

// sound holds each object to make sense, and to name what is there.
func sound(f farm.Farm) error {
	r := references{projects: names(f.Projects, projectName), cells: names(f.Cells, cellName),
		shapes: names(f.Shapes, shapeName), networks: names(f.Networks, networkName), users: names(f.Users, userName)}
	var errs []error
	errs = append(errs, f.Settings.Validate(), f.Maxima.Validate())
	for _, c := range f.Cells {
		errs = append(errs, c.Validate(), r.need("cell "+c.Name, kindProject, r.projects, c.Projects...))
	}
	for _, p := range f.Projects {
		errs = append(errs, p.Validate(), r.need("project "+p.Name, kindShape, r.shapes, p.Shapes...),
			r.need("project "+p.Name, kindNetwork, r.networks, p.Networks...))
	}
	for _, s := range f.Shapes {
		errs = append(errs, farm.CheckName("shape", s.Name), s.Validate())
	}
	for _, n := range f.Networks {
		errs = append(errs, n.Validate())
	}
	for _, g := range f.Groups {
		errs = append(errs, g.Validate(), r.need("group "+groupName(g), kindProject, r.projects, g.Project))
	}
	subjects := map[string]string{}
	for _, u := range f.Users {
		errs = append(errs, u.Validate())
		for _, s := range u.Subjects {
			if other, ok := subjects[s]; ok {
				errs = append(errs, badFarm("subject %q is user %s's and user %s's: a certificate stands for one user",
					s, other, u.Name))
			}
			subjects[s] = u.Name
		}
	}
	for _, g := range f.Grants {
		what := "grant " + g.String()
		errs = append(errs, g.Validate(), r.need(what, kindUser, r.users, g.User),
			r.need(what, kindProject, r.projects, g.Project), r.need(what, kindCell, r.cells, g.Cell))
	}
	return together(errs)
}

// together is one error of several, with the first one's code. A farm may be wrong in hundreds of ways; a few are
// enough at a time.
func together(errs []error) error {
	const most = 5
	var first *farm.Error
	var messages []string
	for _, err := range errs {
		e, ok := errors.AsType[*farm.Error](err)
		switch {
		case err == nil:
			continue
		case !ok:
			return err
		case first == nil:
			first = e
		}
		messages = append(messages, e.Message)
	}
	if first == nil {
		return nil
	}
	if more := len(messages) - most; more > 0 {
		messages = append(messages[:most], fmt.Sprintf("and %d more", more))
	}
	return &farm.Error{Kind: first.Kind, Code: first.Code, Message: strings.Join(messages, "; "), Hint: first.Hint}
}

func names[T any](list []T, name func(T) string) map[string]bool {
	out := make(map[string]bool, len(list))
	for _, v := range list {
		out[name(v)] = true
	}
	return out
}

// references are the names that there are.
type references struct{ projects, cells, shapes, networks, users map[string]bool }

// need refuses names that are not there, and lists those that are, the nearest first.
func (r references) need(what, kind string, there map[string]bool, wanted ...string) error {
	for _, w := range wanted {
		if w == "" || there[w] {
			continue
		}
		message := fmt.Sprintf("%s names %s %q, which is not there", what, kind, w)
		switch {
		case len(there) == 0:
			message += fmt.Sprintf(": no %s yet", kind)
		default:
			message += "; there are " + someOf(nearest(there, w))
		}
		return badFarm("%s", message)
	}
	return nil
}

// nearest puts names that differ in case or white space alone first: they are what was meant.
func nearest(there map[string]bool, wanted string) []string {
	far := func(s string) int {
		if strings.EqualFold(s, strings.TrimSpace(wanted)) {
			return 0
		}
		return 1
	}
	return slices.SortedFunc(maps.Keys(there),
		func(a, b string) int { return cmp.Or(cmp.Compare(far(a), far(b)), cmp.Compare(a, b)) })
}

// someOf is a list for people.
func someOf(names []string) string {
	const most = 10
	if more := len(names) - most; more > 0 {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}
