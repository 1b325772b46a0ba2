package policy

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

// people are grants as a site with two experiments has them.
var people = []farm.Grant{
	{User: "ann", Role: farm.RoleMember, Project: "atlas"},
	{User: "ann", Role: farm.RoleReader, Project: "cms"},
	{User: "bob", Role: farm.RoleOperator, Project: "atlas"},
	{User: "cyd", Role: farm.RoleOperator, Cell: "b7"},
	{User: "dan", Role: farm.RoleReader},
	{User: "eve", Role: farm.RoleAdmin},
	{User: "eve", Role: farm.RoleReader, Project: "atlas"},
	{User: "fay", Role: farm.RoleAdmin, Project: "atlas"},
	{User: "gus", Role: "boss"},
	{User: "hal", Role: farm.RoleOperator, Project: "atlas", Cell: "b7"},
}

func user(name string) farm.Identity { return farm.Identity{User: name, Means: "certificate"} }

func token(name string, role farm.Role, projects ...string) farm.Identity {
	return farm.Identity{User: name, Means: "token", Role: role, Projects: projects}
}

func TestAllow(t *testing.T) {
	anns := Target{Project: "atlas", Cell: "b7", Owner: "ann"}
	for name, c := range map[string]struct {
		who    farm.Identity
		action Action
		target Target
		want   bool
		reason string
	}{
		"root":                    {farm.Identity{Root: true}, ApplyFarm, Target{}, true, "root"},
		"nobody":                  {farm.Identity{}, ReadVM, anns, false, "nobody is known"},
		"host":                    {farm.Identity{Host: "h"}, ReadVM, anns, false, "itself only"},
		"no such action":          {user("eve"), "vm.steal", anns, false, "no such action"},
		"root and no such action": {farm.Identity{Root: true}, "vm.steal", anns, false, "no such action"},
		"member makes": {user("ann"), CreateVM, Target{Project: "atlas"}, true,
			"role member in project atlas is enough"},
		"member of another": {user("ann"), CreateVM, Target{Project: "lhcb"}, false,
			"needs role member in project lhcb or everywhere, and ann has none there"},
		"reader makes none": {user("ann"), CreateVM, Target{Project: "cms"}, false, "ann is reader there"},
		"own":               {user("ann"), DeleteVM, anns, true, "role member"},
		"own, where only a reader": {user("ann"), DeleteVM, Target{Project: "cms", Owner: "ann"}, false,
			"needs role member"},
		"own, where no longer anybody": {user("dora"), DeleteVM, Target{Project: "cms", Owner: "dora"}, false,
			"has none"},
		"another's": {user("ann"), ConsoleVM, Target{Project: "atlas", Owner: "bob"}, false,
			"needs role operator in project atlas or everywhere, and ann is member there"},
		"operator of the project":    {user("bob"), RebuildVM, anns, true, "role operator in project atlas"},
		"cell's operator sees":       {user("cyd"), ReadVM, anns, true, "in cell b7"},
		"cell's operator stops none": {user("cyd"), StopVM, anns, false, "has none there"},
		"cell's operator drains": {user("cyd"), DrainHost, Target{Cell: "b7", Name: "h1"}, true,
			"operator in cell b7"},
		"not another cell's":         {user("cyd"), DrainHost, Target{Cell: "b8"}, false, "in cell b8 or everywhere"},
		"cell's operator and tokens": {user("cyd"), JoinHost, Target{Cell: "b7"}, false, "cyd is operator there"},
		"reader of all":              {user("dan"), ReadHost, Target{Cell: "b9"}, true, "role reader everywhere"},
		"reader of all makes none":   {user("dan"), CreateVM, Target{Project: "atlas"}, false, "dan is reader"},
		"admin everywhere":           {user("eve"), StopVM, anns, true, "role admin everywhere"},
		"project's admin": {user("fay"), WriteGrant, Target{Project: "atlas"}, true,
			"role admin in project atlas"},
		"project's admin and quotas": {user("fay"), ApplyFarm, Target{Project: "atlas"}, false,
			"needs role admin everywhere"},
		"project's admin and the site": {user("fay"), WriteGrant, Target{}, false, "everywhere"},
		"no such role":                 {user("gus"), ReadVM, anns, false, "has none"},
		"both project and cell":        {user("hal"), ReadVM, anns, true, "project atlas on cell b7"},
		"project alone is not enough":  {user("hal"), ReadVM, Target{Project: "atlas", Cell: "b8"}, false, "has none"},
		"and changes need the project": {user("hal"), StopVM, anns, false, "has none"},
		"catalogue":                    {user("cyd"), ReadCatalogue, Target{}, true, "reader"},
		"catalogue, no role":           {user("zoe"), ReadCatalogue, Target{}, false, "anywhere"},
		"member's project's problem":   {user("ann"), OpenIncident, Target{Project: "atlas", Cell: "b9"}, true, "member in"},
		"reader's project's problem":   {user("ann"), NoteIncident, Target{Project: "cms"}, false, "ann is reader there"},
		"cell's problem":               {user("cyd"), CloseIncident, Target{Cell: "b7"}, true, "operator in cell b7"},
		"closed by its opener":         {user("ann"), CloseIncident, anns, true, "role member in project atlas"},
		"closed by another": {user("ann"), CloseIncident, Target{Project: "atlas", Owner: "bob"}, false,
			"needs role operator in project atlas or everywhere"},
		"closed by an opener who left": {user("zoe"), CloseIncident, Target{Project: "atlas", Owner: "zoe"}, false,
			"has none there"},
		"own token":       {user("zoe"), MakeToken, Target{Owner: "zoe"}, true, "own"},
		"another's token": {user("fay"), MakeToken, Target{Owner: "zoe"}, false, "everywhere"},
		"token bounds the role": {token("eve", farm.RoleMember), StopVM, Target{Project: "atlas", Owner: "ann"},
			false, "eve is member there"},
		"token bounds, own": {token("ann", farm.RoleReader), DeleteVM, anns, false, "ann is reader there"},
		"token never raises": {token("ann", farm.RoleAdmin), StopVM, Target{Project: "atlas", Owner: "bob"},
			false, "ann is member there"},
		"token of a project": {token("eve", "", "cms"), StopVM, anns, false,
			"the token is for project cms only"},
		"token of projects": {token("eve", "", "cms", "atlas"), StopVM, anns, true, "everywhere"},
		"token of a project, fleet": {token("eve", "", "cms"), DrainHost, Target{Cell: "b7"}, false,
			"the token is for project cms only"},
		"token of a project, list": {token("eve", "", "cms"), ReadCatalogue, Target{}, true, "reader"},
		"bound token makes no token": {token("zoe", farm.RoleReader), MakeToken, Target{Owner: "zoe"}, false,
			"has none there"},
		"nor one of a project": {token("zoe", "", "cms"), MakeToken, Target{Owner: "zoe"}, false,
			"project cms only"},
		"bound token sees tokens": {token("zoe", farm.RoleReader), ReadToken, Target{Owner: "zoe"}, true, "own"},
		"bound by nonsense":       {token("eve", "boss"), ReadVM, anns, false, "eve is boss"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Allow(c.who, people, c.action, c.target)
			if got.Allowed != c.want || !strings.Contains(got.Reason(), c.reason) {
				t.Errorf("%v, want %v by %q:\n%s", got.Allowed, c.want, c.reason, strings.Join(got.Why, "\n"))
			}
			e := new(farm.Error)
			if err := got.Err(); c.want != (err == nil) ||
				err != nil && (!errors.As(err, &e) || e.Kind != farm.Denied || e.Code != farm.CodeNoRole) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestAllowSaysEveryRule(t *testing.T) {
	got := Allow(token("ann", farm.RoleReader, "atlas"), people, DeleteVM,
		Target{Project: "atlas", Owner: "ann", Name: "atlas/vm-1"})
	want := []string{"the token is for project atlas only: project atlas is among them",
		"it is ann's own: role member is enough", "role member in project atlas counts",
		"role reader in project cms does not count here", "the token bounds role member to reader",
		"vm.delete needs role member in project atlas or everywhere, and ann is reader there"}
	if d := cmp.Diff(want, got.Why); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	const message = "ann may not vm.delete on atlas/vm-1: vm.delete needs role member in project atlas or " +
		"everywhere, and ann is reader there"
	if err := got.Err(); err == nil || err.Error() != message {
		t.Errorf("%v", err)
	}
}

// Whatever grants, tokens and targets there are: a reader never changes anything, nobody without a grant does anything,
// a bound of a token never adds a right, and more grants never take one away.
func TestAllowProperties(t *testing.T) {
	names, roles := []string{"", "a", "b"}, append([]farm.Role{"", "boss"}, farm.Roles...)
	for _, action := range Actions() {
		for _, g := range grants(names, roles) {
			for _, target := range targets(names) {
				one := []farm.Grant{g}
				plain := Allow(user("u"), one, action, target)
				if plain.Allowed && target.Owner != "u" && (g.Role == farm.RoleReader || !g.Role.Valid()) &&
					action.Changes() {
					t.Fatalf("role %q may %s on %+v", g.Role, action, target)
				}
				if Allow(user("u"), nil, action, target).Allowed && target.Owner != "u" {
					t.Fatalf("without a grant, %s on %+v", action, target)
				}
				for _, role := range roles {
					for _, bound := range [][]string{nil, {"a"}} {
						if Allow(token("u", role, bound...), one, action, target).Allowed && !plain.Allowed {
							t.Fatalf("a token of role %q for %v adds %s on %+v to %+v", role, bound, action, target, g)
						}
						if role == farm.RoleReader && action.Changes() &&
							Allow(token("u", role, bound...), one, action, target).Allowed {
							t.Fatalf("a reader's token may %s on %+v", action, target)
						}
					}
				}
				if plain.Allowed && !Allow(user("u"), append(one, farm.Grant{User: "u", Role: farm.RoleReader}), action,
					target).Allowed {
					t.Fatalf("one more grant takes %s away", action)
				}
			}
		}
	}
}

func grants(names []string, roles []farm.Role) (all []farm.Grant) {
	for _, role := range roles {
		for _, project := range names {
			for _, cell := range names {
				all = append(all, farm.Grant{User: "u", Role: role, Project: project, Cell: cell})
			}
		}
	}
	return all
}

func targets(names []string) (all []Target) {
	for _, project := range names {
		for _, cell := range names {
			for _, owner := range []string{"", "u", "v"} {
				all = append(all, Target{Project: project, Cell: cell, Owner: owner})
			}
		}
	}
	return all
}
