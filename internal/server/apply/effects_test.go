package apply

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/farmfile"
)

// Whatever two farms say: after the second was applied it changes nothing, and where diff sends new VMs is never to a
// closed cell.
func TestDiffProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	have, _, err := farmfile.Diff(randomFarm(random, true), farm.Farm{}, false)
	if err != nil {
		t.Fatal(err)
	}
	changed, refused := 0, 0
	for range 2000 {
		want, prune := randomFarm(random, false), random.IntN(2) == 0
		after, changes, err := farmfile.Diff(have, want, prune)
		if err != nil {
			refused++
			continue
		}
		changed += len(changes)
		again, none, err := farmfile.Diff(after, want, prune)
		if err != nil || len(none) > 0 {
			t.Fatalf("applied twice: %v, %v\nof %+v\non %+v", none, err, want, have)
		}
		if d := cmp.Diff(after, again); d != "" {
			t.Fatalf("applied twice:\n%s", d)
		}
		step := transition{farmfile.NewIndex(have), farmfile.NewIndex(after)}
		for _, m := range movesOf(step) {
			for _, c := range m.is {
				if cell := step.after.CellOf[c]; cell.Closed || cell.Drain.Active() {
					t.Fatalf("project %s would go to closed cell %s", m.project, c)
				}
			}
		}
		if slices.ContainsFunc(changes, func(c farmfile.Change) bool { return c.Op == farmfile.OpDelete }) && !prune {
			t.Fatalf("deletes without being told to: %v", changes)
		}
		have = after
	}
	if changed < 2000 || refused < 100 {
		t.Errorf("%d changes and %d refusals say little", changed, refused)
	}
}

// randomFarm is some farm; a whole one has all lists.
func randomFarm(r *rand.Rand, whole bool) farm.Farm {
	f := farm.Farm{Settings: &farm.Settings{}, Maxima: &farm.Maxima{}}
	some := func() bool { return r.IntN(2) == 0 }
	pick := func(words ...string) (out []string) {
		for _, w := range words {
			if some() {
				out = append(out, w)
			}
		}
		return out
	}
	if whole || some() {
		f.Projects = []farm.Project{}
		for _, p := range pick("p", "q", "r") {
			f.Projects = append(f.Projects, farm.Project{Name: p, Quota: farm.Quota{CPUs: r.IntN(3)}})
		}
	}
	if whole || some() {
		f.Cells = []farm.FarmCell{}
		for _, c := range pick("a", "b", "c", "d") {
			cell := farm.FarmCell{Cell: farm.Cell{Name: c, Default: some(), PerHost: r.IntN(3)}}
			if !whole && r.IntN(3) == 0 {
				cell.Projects = pick("p", "q")
			}
			if open := some(); some() {
				cell.Open = &open
			}
			cell.Cell = cell.WithDefaults()
			f.Cells = append(f.Cells, cell)
		}
	}
	if whole || some() {
		f.Users = []farm.User{}
		for _, u := range pick("ann", "bob") {
			f.Users = append(f.Users, farm.User{Name: u, Disabled: some()})
		}
	}
	if whole {
		f.Shapes, f.Networks, f.Groups, f.Grants =
			[]farm.Shape{}, []farm.FleetNetwork{}, []farm.ServerGroup{}, []farm.Grant{}
		return f
	}
	if r.IntN(4) == 0 {
		f.Grants = []farm.Grant{{User: "ann", Role: farm.RoleMember, Project: "p"}}
	}
	if some() {
		f.Maxima, f.Settings = nil, nil
	}
	return f
}
