package policy

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

func cell(name string, more ...func(*farm.Cell)) farm.Cell {
	c := farm.Cell{Name: name}
	for _, m := range more {
		m(&c)
	}
	return c
}

func usual(c *farm.Cell) { c.Default = true }

func of(projects ...string) func(*farm.Cell) {
	return func(c *farm.Cell) { c.Projects = projects }
}

func shut(reason string) func(*farm.Cell) {
	return func(c *farm.Cell) { c.Closed, c.Reason = true, reason }
}

func drained(reason string) func(*farm.Cell) {
	return func(c *farm.Cell) { c.Drain = farm.Drain{Since: time.Unix(1, 0), Reason: reason} }
}

func TestCellsFor(t *testing.T) {
	blog := []farm.Cell{cell("cellA", usual), cell("cellB", usual), cell("cellC", usual), cell("cellD", usual),
		cell("cellE", of("p1", "p2")), cell("cellF", of("p3"))}
	for name, c := range map[string]struct {
		project string
		cells   []farm.Cell
		want    []string
		code    farm.Code
		says    string
	}{
		"mapped":                    {project: "p2", cells: blog, want: []string{"cellE"}},
		"mapped elsewhere":          {project: "p3", cells: blog, want: []string{"cellF"}},
		"unmapped":                  {project: "p4", cells: blog, want: []string{"cellA", "cellB", "cellC", "cellD"}},
		"another case is another":   {project: "P2", cells: blog, want: []string{"cellA", "cellB", "cellC", "cellD"}},
		"white space is not a name": {project: " p2", cells: blog, want: []string{"cellA", "cellB", "cellC", "cellD"}},
		"a part of a name":          {project: "p", cells: blog, want: []string{"cellA", "cellB", "cellC", "cellD"}},
		"in several cells": {project: "p",
			cells: []farm.Cell{cell("a", usual), cell("b", of("p")), cell("c", of("q", "p"))},
			want:  []string{"b", "c"}},
		"in both lists, mapped": {project: "p", cells: []farm.Cell{cell("a", usual), cell("b", usual, of("p"))},
			want: []string{"b"}},
		"in both lists, others": {project: "q", cells: []farm.Cell{cell("a", usual), cell("b", usual, of("p"))},
			want: []string{"a", "b"}},
		"one of its cells closed": {project: "p", cells: []farm.Cell{cell("a", of("p"), shut("")), cell("b", of("p"))},
			want: []string{"b"}},
		"one default cell closed": {project: "p", cells: []farm.Cell{cell("a", usual, shut("")), cell("b", usual)},
			want: []string{"b"}},
		"never back to defaults": {project: "p",
			cells: []farm.Cell{cell("a", usual), cell("b", of("p"), shut("upgrade"))}, code: farm.CodeCellsClosed,
			says: `new VMs of project "p" have nowhere to go: the one cell that is for it takes none: b is closed (upgrade)`},
		"all of several closed": {project: "p",
			cells: []farm.Cell{cell("a", usual), cell("b", of("p"), shut("")), cell("c", of("p"), drained("disks"))},
			code:  farm.CodeCellsClosed,
			says:  `all the cells that are for it take none: b is closed, c is being drained (disks)`},
		"drained counts as closed": {project: "p", cells: []farm.Cell{cell("a", usual, drained(""))},
			code: farm.CodeCellsClosed, says: "the one default cell takes none: a is being drained"},
		"all defaults closed": {project: "p",
			cells: []farm.Cell{cell("a", usual, shut("x")), cell("b", usual, shut("y")), cell("c", of("q"))},
			code:  farm.CodeCellsClosed, says: "all default cells take none: a is closed (x), b is closed (y)"},
		"no default": {project: "p", cells: []farm.Cell{cell("a", of("q"))}, code: farm.CodeNoCell,
			says: "no cell is for this project, and no cell is a default one"},
		"no cell": {project: "p", code: farm.CodeNoCell, says: "no cell is a default one"},
		"neither default nor mapped takes nobody": {project: "p", cells: []farm.Cell{cell("a"), cell("b", usual)},
			want: []string{"b"}},
		// so farm files refuse names of projects that are not there
		"renamed in one place only": {project: "new",
			cells: []farm.Cell{cell("a", usual), cell("b", of("old"))}, want: []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := CellsFor(c.project, c.cells)
			e := new(farm.Error)
			if c.code != "" && (!errors.As(err, &e) || e.Code != c.code || e.Kind != farm.Conflict ||
				!strings.Contains(e.Message, c.says) || e.Hint == "") {
				t.Errorf("%v, want %s that says %q", err, c.code, c.says)
			}
			if c.code == "" && err != nil {
				t.Error(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestChooseCell(t *testing.T) {
	cells := []farm.Cell{cell("a", usual), cell("b", usual, shut("upgrade")), cell("c", of("p", "q")),
		cell("d", of("q")), cell("e")}
	for name, c := range map[string]struct {
		project, asked string
		want           []string
		code           farm.Code
	}{
		"none asked":           {project: "q", want: []string{"c", "d"}},
		"one of its own":       {project: "q", asked: "d", want: []string{"d"}},
		"a default one":        {project: "x", asked: "a", want: []string{"a"}},
		"a closed one":         {project: "x", asked: "b", code: farm.CodeCellsClosed},
		"mapped and a default": {project: "p", asked: "a", code: farm.CodeForeignCell},
		"another's":            {project: "p", asked: "d", code: farm.CodeForeignCell},
		"unmapped, another's":  {project: "x", asked: "c", code: farm.CodeForeignCell},
		"nobody's":             {project: "x", asked: "e", code: farm.CodeForeignCell},
		"no such":              {project: "x", asked: "A", code: farm.CodeNoSuchCell},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ChooseCell(c.project, c.asked, cells)
			e := new(farm.Error)
			if (c.code != "") != (err != nil) || err != nil && (!errors.As(err, &e) || e.Code != c.code) {
				t.Errorf("%v, want %q", err, c.code)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// Whatever cells there are: no closed cell is ever chosen, a project that a cell names goes to no other, and there is
// either a cell or an error.
func TestCellsForProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		var cells []farm.Cell
		for i := range random.IntN(6) {
			c := cell(string(rune('a' + i)))
			c.Default, c.Closed = random.IntN(2) == 0, random.IntN(3) == 0
			if random.IntN(5) == 0 {
				c.Drain.Since = time.Unix(1, 0)
			}
			for _, p := range []string{"p", "q", "r"} {
				if random.IntN(4) == 0 {
					c.Projects = append(c.Projects, p)
				}
			}
			cells = append(cells, c)
		}
		names, err := CellsFor("p", cells)
		if (err == nil) != (len(names) > 0) {
			t.Fatalf("%v and %v of %+v", names, err, cells)
		}
		mapped := slices.ContainsFunc(cells, func(c farm.Cell) bool { return slices.Contains(c.Projects, "p") })
		for _, c := range cells {
			chosen := slices.Contains(names, c.Name)
			mine := slices.Contains(c.Projects, "p") || !mapped && c.Default
			if open := !c.Closed && !c.Drain.Active(); chosen != (mine && open) {
				t.Fatalf("cell %s chosen: %v, of %+v", c.Name, chosen, cells)
			}
			one, err := ChooseCell("p", c.Name, cells)
			if (err == nil) != chosen || err == nil && !slices.Equal(one, []string{c.Name}) {
				t.Fatalf("asked for cell %s: %v, %v of %+v", c.Name, one, err, cells)
			}
		}
	}
}

func TestCheckQuota(t *testing.T) {
	limit := farm.Quota{VMs: 10, CPUs: 32, Memory: 64 * farm.GiB, Scratch: farm.TiB}
	for name, c := range map[string]struct {
		limit, used, more farm.Quota
		says              []string
	}{
		"nothing bounds": {used: farm.Quota{VMs: 1000}, more: farm.Quota{VMs: 1, CPUs: 99}},
		"room": {limit: limit, used: farm.Quota{VMs: 9, CPUs: 28},
			more: farm.Quota{VMs: 1, CPUs: 4, Memory: 64 * farm.GiB}},
		"one too many": {limit: limit, used: farm.Quota{VMs: 10}, more: farm.Quota{VMs: 1},
			says: []string{"10 of 10 VMs are in use, and 1 more are asked for"}},
		"each that is over": {limit: limit, used: farm.Quota{CPUs: 30, Memory: 60 * farm.GiB},
			more: farm.Quota{VMs: 1, CPUs: 4, Memory: 8 * farm.GiB},
			says: []string{"30 of 32 CPUs are in use, and 4 more", "60G of 64G of memory are in use, and 8G more"}},
		"lowered, and not asked for": {limit: limit, used: farm.Quota{Scratch: 2 * farm.TiB, CPUs: 40},
			more: farm.Quota{VMs: 1}},
		"scratch": {limit: limit, used: farm.Quota{Scratch: farm.TiB},
			more: farm.Quota{Scratch: farm.GiB}, says: []string{"1T of 1T of scratch"}},
		"beyond any number": {limit: limit, used: farm.Quota{Memory: 1},
			more: farm.Quota{Memory: ^farm.Bytes(0)}, says: []string{"memory"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckQuota("project atlas", c.limit, c.used, c.more)
			e := new(farm.Error)
			if (len(c.says) > 0) != (err != nil) ||
				err != nil && (!errors.As(err, &e) || e.Code != farm.CodeQuota ||
					!strings.Contains(e.Message, "project atlas")) {
				t.Fatal(err)
			}
			for _, s := range c.says {
				if !strings.Contains(e.Message, s) {
					t.Errorf("%q does not say %q", e.Message, s)
				}
			}
		})
	}
}
