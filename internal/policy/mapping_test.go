package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestMap holds claims of every form against mappings to every place.
func TestMap(t *testing.T) {
	mappings := []farm.Mapping{
		{Issuer: "wlcg", Claim: "wlcg.groups", Value: "/atlas/production", Role: farm.RoleOperator, Project: "atlas"},
		{Issuer: "wlcg", Claim: "wlcg.groups", Value: "/atlas", Role: farm.RoleMember, Project: "atlas"},
		{Issuer: "wlcg", Claim: "scope", Value: "compute.read", Role: farm.RoleReader},
		{Issuer: "wlcg", Claim: "eduperson_entitlement", Value: "urn:geant:x:group:it", Role: farm.RoleOperator,
			Cell: "east"},
		{Issuer: "wlcg", Claim: "realm_access.roles", Value: "boss", Role: farm.RoleAdmin},
		{Issuer: "other", Claim: "groups", Value: "it", Role: farm.RoleAdmin},
	}
	for _, m := range mappings {
		if err := m.Validate(); err != nil {
			t.Errorf("%v: %v", m, err)
		}
	}
	for name, c := range map[string]struct {
		issuer, claims string
		want           string // grants
		ignored        string // is said
	}{
		"a list":                     {"wlcg", `{"wlcg.groups":["/atlas","/cms"]}`, "ann member project:atlas", `"/cms"`},
		"two rules":                  {"wlcg", `{"wlcg.groups":["/atlas","/atlas/production"]}`, "ann operator project:atlas, ann member project:atlas", ""},
		"one text":                   {"wlcg", `{"wlcg.groups":"/atlas"}`, "ann member project:atlas", ""},
		"part of a value":            {"wlcg", `{"wlcg.groups":["/atlas2","/at","atlas"]}`, "", "has other values"},
		"another case":               {"wlcg", `{"wlcg.groups":["/ATLAS"]}`, "", "differs in case or white space alone"},
		"white space":                {"wlcg", `{"wlcg.groups":["/atlas "]}`, "", "differs in case or white space alone"},
		"scopes are one text":        {"wlcg", `{"scope":"openid compute.read"}`, "ann reader", `"openid"`},
		"an entitlement":             {"wlcg", `{"eduperson_entitlement":["urn:geant:x:group:it"]}`, "ann operator cell:east", ""},
		"inside of another claim":    {"wlcg", `{"realm_access":{"roles":["boss"]}}`, "ann admin", ""},
		"the whole name goes before": {"wlcg", `{"realm_access.roles":["x"],"realm_access":{"roles":["boss"]}}`, "", `"x"`},
		"another issuer's":           {"wlcg", `{"groups":["it"]}`, "", "no such claim"},
		"that issuer's":              {"other", `{"groups":["it"]}`, "ann admin", ""},
		"of no known issuer":         {"x", `{"groups":["it"],"wlcg.groups":["/atlas"]}`, "", ""},
		"a number":                   {"wlcg", `{"wlcg.groups":7}`, "", "neither text nor a list"},
		"an object":                  {"wlcg", `{"wlcg.groups":{"/atlas":true}}`, "", "neither text nor a list"},
		"a list of other things":     {"wlcg", `{"wlcg.groups":[1,null,["/atlas"],"/atlas/production"]}`, "ann operator project:atlas", ""},
		"nothing":                    {"wlcg", `{}`, "", "no such claim"},
		"too many":                   {"wlcg", `{"wlcg.groups":["/atlas"` + strings.Repeat(`,"x"`, maxClaimValues) + `]}`, "", "more than"},
	} {
		var claims map[string]any
		if err := json.Unmarshal([]byte(c.claims), &claims); err != nil {
			t.Fatal(err)
		}
		got := Map(mappings, c.issuer, claims)
		var grants []string
		for _, g := range got.Grants("ann") {
			grants = append(grants, g.String())
		}
		if said := strings.Join(grants, ", "); said != c.want ||
			!strings.Contains(fmt.Sprint(got.Ignored), c.ignored) {
			t.Errorf("%s: %s, not %s; ignored %q", name, said, c.want, got.Ignored)
		}
	}
}

func TestMappingsThatCannotBe(t *testing.T) {
	good := farm.Mapping{Issuer: "wlcg", Claim: "groups", Value: "x", Role: farm.RoleMember, Project: "atlas"}
	for name, change := range map[string]func(*farm.Mapping){
		"no issuer": func(m *farm.Mapping) { m.Issuer = "" }, "no claim": func(m *farm.Mapping) { m.Claim = "" },
		"no value": func(m *farm.Mapping) { m.Value = "" }, "a line break": func(m *farm.Mapping) { m.Value = "a\nb" },
		"no role": func(m *farm.Mapping) { m.Role = "boss" }, "two places": func(m *farm.Mapping) { m.Cell = "east" },
		"member of a cell": func(m *farm.Mapping) { m.Project, m.Cell = "", "east" },
	} {
		m := good
		change(&m)
		if m.Validate() == nil {
			t.Errorf("%s: %v", name, m)
		}
	}
}
