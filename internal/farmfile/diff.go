package farmfile

import (
	"cmp"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// Diff returns the farm as want leaves it, and what changes on the way there, in an order in which it can be done. have
// is whole: no list is nil, and settings and maxima are there. What want does not mention stays, but with prune the
// kinds that it mentions lose what it lacks. An error says what is wrong with want: most are of farm.CodeBadFarm, and
// objects may be refused with a code of their own.
func Diff(have, want farm.Farm, prune bool) (after farm.Farm, changes []Change, err error) {
	if err := unique(want); err != nil {
		return after, nil, err
	}
	after = farm.Farm{
		Cells:    wantedOf(have.Cells, cellsAsTheyAre(have.Cells, want.Cells), cellName, prune),
		Projects: wantedOf(have.Projects, want.Projects, projectName, prune),
		Shapes:   wantedOf(have.Shapes, want.Shapes, shapeName, prune),
		Scores:   wantedOf(have.Scores, want.Scores, scoreName, prune),
		Networks: wantedOf(have.Networks, want.Networks, networkName, prune),
		Groups:   wantedOf(have.Groups, want.Groups, groupName, prune),
		Users:    wantedOf(have.Users, want.Users, userName, prune),
		Grants:   wantedOf(have.Grants, want.Grants, farm.Grant.String, prune),
		Mappings: wantedOf(have.Mappings, want.Mappings, farm.Mapping.String, prune),
		Settings: cmp.Or(want.Settings, have.Settings), Maxima: cmp.Or(want.Maxima, have.Maxima),
	}
	goWith(&after, have, want)
	if err := validate(after); err != nil {
		return after, nil, err
	}
	return after, changesOf(have, after), nil
}

// changesOf returns what differs: what goes, in the reverse order of what is made and changed.
func changesOf(have, after farm.Farm) []Change {
	made, gone := []Change{}, []Change{}
	add := func(m, g []Change) { made, gone = append(made, m...), append(g, gone...) }
	add(changed(KindSettings, []farm.Settings{*have.Settings}, []farm.Settings{*after.Settings},
		func(farm.Settings) string { return "" }, settingsFields))
	add(changed(KindMaxima, []farm.Maxima{*have.Maxima}, []farm.Maxima{*after.Maxima},
		func(farm.Maxima) string { return "" }, maximaFields))
	add(changed(KindProject, have.Projects, after.Projects, projectName, projectFields))
	add(changed(KindCell, have.Cells, after.Cells, cellName, cellFields))
	add(changed(KindShape, have.Shapes, after.Shapes, shapeName, shapeFields))
	add(changed(KindScore, have.Scores, after.Scores, scoreName, scoreFields))
	add(changed(KindNetwork, have.Networks, after.Networks, networkName, networkFields))
	add(changed(KindGroup, have.Groups, after.Groups, groupName, groupFields))
	add(changed(KindUser, have.Users, after.Users, userName, userFields))
	add(changed(KindGrant, have.Grants, after.Grants, farm.Grant.String, func(farm.Grant) []field { return nil }))
	add(changed(KindMapping, have.Mappings, after.Mappings, farm.Mapping.String,
		func(farm.Mapping) []field { return nil }))
	return slices.Concat(gone, made)
}

// wantedOf returns what there is with what is wanted in its place.
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

// cellsAsTheyAre returns wanted cells with what a file does not say of them: their drains, and whether they are open
// where it does not mention it.
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

// goWith takes away what has no meaning without something that goes away: grants in it or of it, mappings to it, and a
// project's groups. What the file itself mentions stays, to be refused.
func goWith(after *farm.Farm, have, want farm.Farm) {
	project := lost(have.Projects, after.Projects, projectName)
	cell, user := lost(have.Cells, after.Cells, cellName), lost(have.Users, after.Users, userName)
	grants, groups := byName(want.Grants, farm.Grant.String), byName(want.Groups, groupName)
	after.Grants = slices.DeleteFunc(slices.Clone(after.Grants), func(g farm.Grant) bool {
		_, wanted := grants[g.String()]
		return !wanted && (project[g.Project] || cell[g.Cell] || user[g.User])
	})
	mappings := byName(want.Mappings, farm.Mapping.String)
	after.Mappings = slices.DeleteFunc(slices.Clone(after.Mappings), func(m farm.Mapping) bool {
		_, wanted := mappings[m.String()]
		return !wanted && (project[m.Project] || cell[m.Cell])
	})
	after.Groups = slices.DeleteFunc(slices.Clone(after.Groups), func(g farm.ServerGroup) bool {
		_, wanted := groups[groupName(g)]
		return !wanted && project[g.Project]
	})
}

// lost returns the names that are there, and would not be any more.
func lost[T any](have, after []T, name func(T) string) map[string]bool {
	is, gone := byName(after, name), map[string]bool{}
	for _, h := range have {
		if _, ok := is[name(h)]; !ok {
			gone[name(h)] = true
		}
	}
	return gone
}

// changed compares objects name by name, and returns what is made or changed, and what is deleted.
func changed[T any](kind string, have, after []T, name func(T) string, of func(T) []field) (made, gone []Change) {
	was, is := byName(have, name), byName(after, name)
	for _, a := range after {
		old, ok := was[name(a)]
		if !ok {
			made = append(made, Change{Op: OpCreate, Kind: kind, Name: name(a), Details: fieldsDiff(nil, of(a))})
			continue
		}
		if details := fieldsDiff(of(old), of(a)); len(details) > 0 {
			made = append(made, Change{Op: OpChange, Kind: kind, Name: name(a), Details: details})
		}
	}
	for _, h := range have {
		if _, ok := is[name(h)]; !ok {
			gone = append(gone, Change{Op: OpDelete, Kind: kind, Name: name(h)})
		}
	}
	return made, gone
}

// fieldsDiff returns what differs, in the order of the keys as they are now, and then of those that are no more.
func fieldsDiff(was, is []field) (details []string) {
	text := func(list []field, key string) string {
		return named(list, key, func(f field) string { return f.key }).text
	}
	for _, f := range is {
		switch old := text(was, f.key); {
		case old == "" && was == nil:
			details = append(details, f.key+": "+f.text)
		case old == "":
			details = append(details, f.key+": - → "+f.text)
		case old != f.text:
			details = append(details, f.key+": "+old+" → "+f.text)
		}
	}
	for _, f := range was {
		if !hasName(is, f.key, func(f field) string { return f.key }) {
			details = append(details, f.key+": "+f.text+" → -")
		}
	}
	return details
}
