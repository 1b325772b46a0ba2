package farmfile

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

// whole returns a farm with all lists, as a server has it.
func whole(t *testing.T, text string) farm.Farm {
	t.Helper()
	f := farm.Farm{Cells: []farm.FarmCell{}, Projects: []farm.Project{}, Shapes: []farm.Shape{},
		Networks: []farm.FleetNetwork{}, Groups: []farm.ServerGroup{}, Users: []farm.User{}, Grants: []farm.Grant{},
		Settings: &farm.Settings{}, Maxima: &farm.Maxima{}}
	after, _, err := Diff(f, parse(t, text), false)
	if err != nil {
		t.Fatal(err)
	}
	return after
}

func parse(t *testing.T, text string) farm.Farm {
	t.Helper()
	f, err := Parse([]byte(text), "farm.toml")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// summary returns each change in one line.
func summary(changes []Change) (lines []string) {
	for _, c := range changes {
		lines = append(lines, strings.TrimSpace(c.Op+" "+c.String()+": "+strings.Join(c.Details, ", ")))
	}
	return lines
}

func TestDiff(t *testing.T) {
	have := whole(t, farmText)
	for name, c := range map[string]struct {
		want  string
		prune bool
		lines []string
	}{
		"the same":   {want: farmText, prune: true},
		"nothing":    {want: "", prune: true},
		"less, kept": {want: "[cells]\n[users]\n"},
		"keys that differ": {want: "[projects.atlas]\naccount = \"atlas2\"\nquota = { vms = 100, cpus = 400 }\nmax_age = \"36h\"\n",
			lines: []string{"change project atlas: account: atlasprd → atlas2, max_age: 30d → 36h0m0s, " +
				"quota.memory: 800G → -, quota.scratch: 10T → -, networks: lan → -, shapes: small → -, images: el9* → -"}},
		"settings that go, and a cell that is new": {want: "[settings]\n[cells.x]\n", lines: []string{
			"change settings : boot_timeout: 4m0s → -, default_image: el9 → -, facts.HS06: 357 → -",
			"create cell x: broker: grange, packing: pack, overcommit: 1"}},
		"a project with what has no meaning without it": {prune: true,
			want: "[projects.cms]\n[cells.geneva-1]\ndefault = true\n",
			lines: []string{"delete grant ann member project:atlas:", "delete grant ann operator cell:batch:",
				"delete group atlas/replicas:", "delete cell batch:", "delete project atlas:",
				"change cell geneva-1: packing: spread → pack, overcommit: 1.5 → 1, keep_whole: 2 → -, " +
					"limits.vms: 400 → -, limits.memory: 4T → -, per_host: 40 → -"}},
	} {
		t.Run(name, func(t *testing.T) {
			want := parse(t, c.want)
			after, changes, err := Diff(have, want, c.prune)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.lines, summary(changes)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if _, none, err := Diff(after, want, c.prune); err != nil || len(none) > 0 {
				t.Errorf("once more: %v, %v", summary(none), err)
			}
		})
	}
}

func TestDiffRefuses(t *testing.T) {
	have := whole(t, farmText)
	for text, says := range map[string]string{
		"[cells.a]\nprojects = [\" Atlas\"]":               `cell a names project " Atlas", which is not there; there are atlas, cms`,
		"[projects.p]\nnetworks = [\"wan\"]":               `project p names network "wan", which is not there; there are lan`,
		"[groups.p.g]\naffinity = \"affinity\"":            `group p/g names project "p"`,
		"[[grants]]\nuser = \"zoe\"\nrole = \"reader\"":    `names user "zoe", which is not there; there are ann`,
		"[users.zoe]\nsubjects = [\"CN=Ann,O=Grid,C=CH\"]": "a certificate stands for one user",
	} {
		_, changes, err := Diff(have, parse(t, text), false)
		if !farm.IsCode(err, farm.CodeBadFarm) || !strings.Contains(err.Error(), says) || changes != nil {
			t.Errorf("%s\n%v, %v, want %q", text, changes, err, says)
		}
	}
}

func TestIndexFindsChanges(t *testing.T) {
	index := NewIndex(whole(t, farmText))
	g, grant := index.GroupOf["atlas/replicas"], index.GrantOf["ann operator cell:batch"]
	if g.Project != "atlas" || g.Name != "replicas" || grant.Role != farm.RoleOperator || grant.Cell != "batch" ||
		!slices.Equal(index.CellOf["batch"].Projects, []string{"atlas"}) || index.UserOf["zoe"].Name != "" {
		t.Errorf("%+v", index)
	}
}

// TestStrip: what a server exports is read as the farm that it has.
func TestStrip(t *testing.T) {
	have := whole(t, farmText)
	have.Cells[0].Revision, have.Projects[0].Revision, have.Users[0].Revision = 3, 4, 5
	have.Cells[0].Reason = "opened again"
	file := whole(t, farmText)
	file.Settings, file.Maxima = &farm.Settings{}, &farm.Maxima{}
	Strip(&file)
	if file.Settings != nil || file.Maxima != nil {
		t.Errorf("%+v, %+v", file.Settings, file.Maxima)
	}
	Strip(&have)
	again(t, have)
	if _, changes, err := Diff(whole(t, farmText), have, true); err != nil || len(changes) > 0 {
		t.Errorf("%v, %v", summary(changes), err)
	}
}

func TestDiffUser(t *testing.T) {
	ann := farm.User{Name: "ann", Subjects: []string{"CN=Ann", "CN=A"}}
	for want, got := range map[string][]string{
		"subjects: CN=Ann | CN=A":                         DiffUser(farm.User{}, ann),
		"disabled: - → true; subjects: CN=Ann | CN=A → -": DiffUser(ann, farm.User{Name: "ann", Disabled: true}),
		"": DiffUser(ann, ann),
	} {
		if text := strings.Join(got, "; "); text != want {
			t.Errorf("%s, want %s", text, want)
		}
	}
}
