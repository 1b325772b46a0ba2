package farmfile

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

const mapped = `[projects.atlas]

[users.ann]
logins = ["wlcg:0f3c"]

[[mappings]]
issuer = "wlcg"
claim = "wlcg.groups"
value = "/atlas/production"
role = "operator"
project = "atlas"
`

// TestMappings are read, written, compared, and go with what they give a role in.
func TestMappings(t *testing.T) {
	f, err := Parse([]byte(mapped), "farm.toml")
	if err != nil {
		t.Fatal(err)
	}
	want := []farm.Mapping{{Issuer: "wlcg", Claim: "wlcg.groups", Value: "/atlas/production", Role: farm.RoleOperator,
		Project: "atlas"}}
	if d := cmp.Diff(want, f.Mappings); d != "" || f.Users[0].Logins[0] != "wlcg:0f3c" {
		t.Error(d, f.Users)
	}
	text, err := Format(f)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(text, "written.toml")
	if d := cmp.Diff(f.Mappings, again.Mappings); err != nil || d != "" || again.Users[0].Logins[0] != "wlcg:0f3c" {
		t.Errorf("%v %s\n%s", err, d, text)
	}
	empty := farm.Farm{Cells: []farm.FarmCell{}, Projects: []farm.Project{}, Shapes: []farm.Shape{},
		Networks: []farm.FleetNetwork{}, Groups: []farm.ServerGroup{}, Users: []farm.User{}, Grants: []farm.Grant{},
		Mappings: []farm.Mapping{}, Settings: &farm.Settings{}, Maxima: &farm.Maxima{}}
	after, changes, err := Diff(empty, f, false)
	if err != nil || len(after.Mappings) != 1 || !strings.Contains(said(changes), "create mapping wlcg wlcg.groups=") {
		t.Fatalf("%v %v", err, changes)
	}
	gone, changes, err := Diff(after, farm.Farm{Projects: []farm.Project{}}, true)
	if err != nil || len(gone.Mappings) != 0 || !strings.Contains(said(changes), "delete mapping") {
		t.Errorf("the project goes: %v %v", err, changes)
	}
	for change, says := range map[string]string{
		"project = \"atlas\"\n|project = \"cms\"\n":                      "cms",
		"\"operator\"|\"boss\"":                                          "boss",
		"value = \"/atlas/production\"|value = \"\"":                     "value is empty",
		"wlcg:0f3c|0f3c":                                                 "invalid login",
		"[users.ann]|[users.eve]\nlogins = [\"wlcg:0f3c\"]\n[users.ann]": "stands for one user",
	} {
		from, to, _ := strings.Cut(change, "|")
		bad, err := Parse([]byte(strings.Replace(mapped, from, to, 1)), "farm.toml")
		if err == nil {
			_, _, err = Diff(empty, bad, false)
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", change, err)
		}
	}
}

func said(changes []Change) string {
	var lines []string
	for _, c := range changes {
		lines = append(lines, c.Op+" "+c.String())
	}
	return strings.Join(lines, "\n")
}
