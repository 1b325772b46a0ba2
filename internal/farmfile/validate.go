package farmfile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// unique refuses two objects of one name.
func unique(f farm.Farm) error {
	return errors.Join(eachUnique(KindCell, f.Cells, cellName), eachUnique(KindProject, f.Projects, projectName),
		eachUnique(KindShape, f.Shapes, shapeName), eachUnique(KindScore, f.Scores, scoreName),
		eachUnique(KindNetwork, f.Networks, networkName),
		eachUnique(KindGroup, f.Groups, groupName), eachUnique(KindUser, f.Users, userName))
}

// eachUnique refuses two objects of one kind and name.
func eachUnique[T any](kind string, list []T, name func(T) string) error {
	seen := make(map[string]bool, len(list))
	for _, v := range list {
		if seen[name(v)] {
			return badFarm("%s %s is there twice", kind, name(v))
		}
		seen[name(v)] = true
	}
	return nil
}

// badFarm returns the error about a farm that cannot be brought as it is.
func badFarm(format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadFarm, Message: fmt.Sprintf(format, args...),
		Hint: "docs/guide/cells.md explains every key; nothing was changed"}
}

// validate refuses a farm of which an object makes no sense, or names what is not there. Settings and maxima are there.
func validate(f farm.Farm) error {
	r := references{projects: names(f.Projects, projectName), cells: names(f.Cells, cellName),
		shapes: names(f.Shapes, shapeName), networks: names(f.Networks, networkName), users: names(f.Users, userName)}
	errs := []error{f.Settings.Validate(), f.Maxima.Validate()}
	for _, c := range f.Cells {
		errs = append(errs, c.Validate(), r.need("cell "+c.Name, KindProject, r.projects, c.Projects...))
	}
	for _, p := range f.Projects {
		errs = append(errs, p.Validate(), r.need("project "+p.Name, KindShape, r.shapes, p.Shapes...),
			r.need("project "+p.Name, KindNetwork, r.networks, p.Networks...))
	}
	for _, s := range f.Shapes {
		errs = append(errs, farm.CheckName("shape", s.Name), s.Validate())
	}
	for _, s := range f.Scores {
		errs = append(errs, s.Validate())
	}
	for _, n := range f.Networks {
		errs = append(errs, n.Validate())
	}
	for _, g := range f.Groups {
		errs = append(errs, g.Validate(), r.need("group "+groupName(g), KindProject, r.projects, g.Project))
	}
	errs = append(errs, users(f.Users)...)
	for _, g := range f.Grants {
		what := "grant " + g.String()
		errs = append(errs, g.Validate(), r.need(what, KindUser, r.users, g.User),
			r.need(what, KindProject, r.projects, g.Project), r.need(what, KindCell, r.cells, g.Cell))
	}
	for _, m := range f.Mappings {
		what := "mapping " + m.String()
		errs = append(errs, m.Validate(), r.need(what, KindProject, r.projects, m.Project),
			r.need(what, KindCell, r.cells, m.Cell))
	}
	return farm.JoinErrors(errs)
}

// users returns what is wrong with users: a certificate stands for one of them, and so does a login.
func users(list []farm.User) (errs []error) {
	subjects, logins := map[string]string{}, map[string]string{}
	for _, u := range list {
		errs = append(errs, u.Validate())
		for _, s := range u.Subjects {
			if other, ok := subjects[s]; ok {
				errs = append(errs, badFarm("subject %q is user %s's and user %s's: a certificate stands for one user",
					s, other, u.Name))
			}
			subjects[s] = u.Name
		}
		for _, l := range u.Logins {
			if other, ok := logins[l]; ok {
				errs = append(errs, badFarm("login %q is user %s's and user %s's: it stands for one user", l, other,
					u.Name))
			}
			logins[l] = u.Name
		}
	}
	return errs
}

// names returns the set of the names of a list.
func names[T any](list []T, name func(T) string) map[string]bool {
	out := make(map[string]bool, len(list))
	for _, v := range list {
		out[name(v)] = true
	}
	return out
}

// references holds the names that there are.
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
			message += "; there are " + farm.Enumerate(nearest(there, w))
		}
		return badFarm("%s", message)
	}
	return nil
}

// nearest returns the names, those first that differ in case or white space alone: they are what was meant.
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
