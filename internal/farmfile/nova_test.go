package farmfile

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
)

// routes returns for projects where their new VMs go, as "p1: a b", and why they go nowhere.
func routes(f farm.Farm, projects ...string) (all []string) {
	var cells []farm.Cell
	for _, c := range f.Cells {
		cells = append(cells, c.Cell)
	}
	for _, p := range projects {
		names, err := policy.CellsFor(p, cells)
		if e := new(farm.Error); errors.As(err, &e) {
			names = []string{string(e.Code)}
		}
		all = append(all, p+": "+strings.Join(names, " "))
	}
	return all
}

func TestCellMap(t *testing.T) {
	for name, c := range map[string]struct {
		m     CellMap
		of    []string // projects
		want  []string // their routes
		warns []string // parts
	}{
		"as in the announcement": {m: CellMap{Default: "cellA,cellB,cellC,cellD", Projects: "cellE:u1;u2,cellF:u3"},
			of:   []string{"u1", "u2", "u3", "u4"},
			want: []string{"u1: cellE", "u2: cellE", "u3: cellF", "u4: cellA cellB cellC cellD"}},
		"white space around everything": {m: CellMap{Default: " cellA ,\tcellB\n",
			Projects: "  cellE : u1 ; u2 , cellF:\tu3 "}, of: []string{"u1", "u2", "u3", "u4"},
			want: []string{"u1: cellE", "u2: cellE", "u3: cellF", "u4: cellA cellB"}},
		"empty items and last commas": {m: CellMap{Default: "cellA,,cellB,", Projects: "cellE:u1;;u2;,,cellF:u3,"},
			of:    []string{"u1", "u2", "u3", "u4", ""},
			want:  []string{"u1: cellE", "u2: cellE", "u3: cellF", "u4: cellA cellB", ": cellA cellB"},
			warns: []string{"cells_default has an empty item", "cells_projects has an empty item"}},
		"a project in several cells": {m: CellMap{Default: "cellA", Projects: "cellE:u1,cellF:u1;u2"},
			of: []string{"u1", "u2"}, want: []string{"u1: cellE cellF", "u2: cellF"}},
		"a cell in both lists": {m: CellMap{Default: "cellA,cellE", Projects: "cellE:u1"}, of: []string{"u1", "u2"},
			want: []string{"u1: cellE", "u2: cellA cellE"},
			warns: []string{"cell cellE is in both lists: it takes VMs of projects without cells of their own too, " +
				"and is not kept for u1"}},
		"in neither list": {m: CellMap{Default: "cellA", Projects: "cellE:u1",
			All: []string{"cellA", " cellB ", "cellE", ""}}, of: []string{"u1", "u2"},
			want: []string{"u1: cellE", "u2: cellA"}},
		"a cell that is not there": {m: CellMap{Default: "cellA", Projects: "cellX:u1", All: []string{"cellA"}},
			of: []string{"u1"}, want: []string{"u1: cellX"}, warns: []string{"no cell is called cellX"}},
		"case": {m: CellMap{Default: "cellA", Projects: "cella:U1"}, of: []string{"u1", "U1"},
			want: []string{"u1: cellA", "U1: cella"}, warns: []string{"cells cellA and cella differ in case alone"}},
		"twice": {m: CellMap{Default: "cellA,cellA", Projects: "cellE:u1;u1,cellE:u2"}, of: []string{"u1", "u2"},
			want: []string{"u1: cellE", "u2: cellE"},
			warns: []string{"cell cellA twice", "project u1 twice for cell cellE",
				"cell cellE twice, which nova does not start with"}},
		"a cell without projects": {m: CellMap{Default: "cellA", Projects: "cellE:"}, of: []string{"u1", ""},
			want: []string{"u1: cellA", ": cellA"}, warns: []string{"cell cellE without a project"}},
		"no default": {m: CellMap{Projects: "cellE:u1"}, of: []string{"u1", "u2"},
			want: []string{"u1: cellE", "u2: no-cell"}, warns: []string{"no default cell"}},
		"nothing": {m: CellMap{}, of: []string{"u1"}, want: []string{"u1: no-cell"},
			warns: []string{"no default cell"}},
		"renamed, everywhere": {m: CellMap{Default: "cellA", Projects: "cellE:u1;u2,cellF:u1",
			Rename: map[string]string{"u1": "atlas", "cellE": "geneva-5"}}, of: []string{"u1", "atlas", "u2"},
			want: []string{"u1: cellA", "atlas: cellF geneva-5", "u2: geneva-5"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, warnings, err := c.m.Farm()
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, routes(f, c.of...)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			for _, w := range c.warns {
				if !slices.ContainsFunc(warnings, func(s string) bool { return strings.Contains(s, w) }) {
					t.Errorf("no warning that %q in %q", w, warnings)
				}
			}
			if len(c.warns) == 0 && len(warnings) > 0 {
				t.Errorf("warnings %q", warnings)
			}
			again(t, f)
		})
	}
}

// again holds that a farm is the same when it was written as a file.
func again(t *testing.T, f farm.Farm) {
	t.Helper()
	text, err := Format(f)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(text, "farm.toml")
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if d := cmp.Diff(f, got, cmp.Comparer(farm.AddressPool.Equal)); d != "" {
		t.Errorf("written and read again (-want +got):\n%s\nof\n%s", d, text)
	}
}

func TestCellMapThatNovaRefuses(t *testing.T) {
	for _, text := range []string{"cellE", "cellE:u1,u2", ":u1", " : u1", "cellE;u1"} {
		_, _, err := CellMap{Default: "cellA", Projects: text}.Farm()
		if e := new(farm.Error); !errors.As(err, &e) || e.Code != CodeBadCells {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, m := range []CellMap{{Default: "cell A"}, {Projects: "c:p q"}, {Default: "a\nb"}, {Projects: "c:d:e"}} {
		_, _, err := m.Farm()
		if e := new(farm.Error); !errors.As(err, &e) || e.Code != farm.CodeBadName {
			t.Errorf("%+v: %v", m, err)
		}
	}
}

// novaFilter is what the filter of nova's cells does with the two options: see TestCellMapIsNovas.
func novaFilter(defaults []string, projects map[string]string, all []string, project string) (chosen []string) {
	var mapped []string
	for name, list := range projects {
		if words := strings.Split(list, ";"); slices.ContainsFunc(words,
			func(w string) bool { return strings.TrimSpace(w) == project }) {
			mapped = append(mapped, name)
		}
	}
	for _, c := range all {
		if len(mapped) > 0 && slices.Contains(mapped, c) || len(mapped) == 0 && slices.Contains(defaults, c) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// Whatever the options say, with white space anywhere: each project goes where nova sends it.
func TestCellMapIsNovas(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	space := func() string { return strings.Repeat(" ", random.IntN(3)) }
	names, uuids := []string{"a", "b", "c", "d"}, []string{"p", "q", "r"}
	for range 5000 {
		var defaults, list []string
		projects := map[string]string{}
		for _, c := range names {
			if random.IntN(2) == 0 {
				defaults = append(defaults, c)
			}
			var some []string
			for _, p := range uuids {
				if random.IntN(4) == 0 {
					some = append(some, space()+p+space())
				}
			}
			if len(some) > 0 || random.IntN(5) == 0 {
				projects[c] = strings.Join(some, ";")
			}
		}
		for _, c := range slices.Sorted(maps.Keys(projects)) {
			list = append(list, space()+c+space()+":"+projects[c])
		}
		m := CellMap{Default: strings.Join(defaults, space()+","+space()),
			Projects: strings.Join(list, ","), All: names}
		f, _, err := m.Farm()
		if err != nil {
			t.Fatalf("%+v: %v", m, err)
		}
		for _, p := range append(uuids, "unmapped") {
			want := fmt.Sprintf("%s: %s", p, strings.Join(novaFilter(defaults, projects, names, p), " "))
			got := routes(f, p)[0]
			if want == p+": " {
				want = p + ": " + string(farm.CodeNoCell)
			}
			if got != want {
				t.Fatalf("%+v: %s, and nova %s", m, got, want)
			}
		}
	}
}

func TestReadNova(t *testing.T) {
	const text = "# cells\n[DEFAULT]\nverbose = true\ncells_default = wrong\n[cells]\r\nenable=True\ncells_default = " +
		"cellA,\n    cellB\n\n    lost = 1\n" +
		"cells_projects = wrong:x\ncells_projects = 'cellE:u1;u2'\n;cells_projects=no:no\n"
	m, warnings, err := ReadNova([]byte(text))
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	f, _, err := m.Farm()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"u1: cellE", "x: cellA cellB"}, routes(f, "u1", "x")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	m, warnings, err = ReadNova([]byte("cells_default=a,$other\n"))
	if err != nil || len(warnings) != 2 || m.Default != "a,$other" {
		t.Errorf("%+v, %q, %v", m, warnings, err)
	}
	for _, text := range []string{"", "[cells]\n", "[cells]\nnonsense\n"} {
		if _, _, err := ReadNova([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
