package farmfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// CodeBadCells is the code of errors about lines of nova.conf that nova itself would not take; see docs/errors.md.
const CodeBadCells farm.Code = "bad-cell-map"

// CellMap is how OpenStack sites with CERN's cell filter say which projects go to which cells: two options of
// nova.conf.
//
//	cells_default=cellA,cellB
//	cells_projects=cellE:project1;project2,cellF:project3
//
// A cell that is in neither is disabled: nothing new goes there.
type CellMap struct {
	Default  string
	Projects string
	All      []string          // all cells that there are; none: those that the two options name
	Rename   map[string]string // UUIDs of projects, or names of cells, by what they shall be called
}

// Farm returns the farm that sends each project where the filter of nova sends it, and what an administrator should
// know of it. What nova itself would not start with is an error, CodeBadCells, but for empty items, as behind a
// last comma. Names are compared letter by letter, as in nova.
func (m CellMap) Farm() (f farm.Farm, warnings []string, err error) {
	in := &importing{cells: map[string]*farm.Cell{}, rename: m.Rename}
	in.defaults(m.Default)
	if err := in.projects(m.Projects); err != nil {
		return f, nil, err
	}
	in.neither(m.All)
	in.odd()
	for _, name := range in.order {
		c := in.cells[name]
		cell := farm.FarmCell{Cell: *c}
		if c.Closed {
			shut := false
			cell.Open = &shut
		}
		if err := c.Validate(); err != nil {
			return f, nil, err
		}
		f.Cells = append(f.Cells, cell)
		for _, p := range c.Projects {
			if !slices.ContainsFunc(f.Projects, func(o farm.Project) bool { return o.Name == p }) {
				f.Projects = append(f.Projects, farm.Project{Name: p})
			}
		}
	}
	for _, p := range f.Projects {
		if err := p.Validate(); err != nil {
			return f, nil, err
		}
	}
	byNames(f.Cells, func(c farm.FarmCell) string { return c.Name })
	byNames(f.Projects, func(p farm.Project) string { return p.Name })
	return f, in.warnings, nil
}

func byNames[T any](list []T, name func(T) string) {
	slices.SortFunc(list, func(a, b T) int { return strings.Compare(name(a), name(b)) })
}

// importing is a farm on its way out of the options.
type importing struct {
	cells    map[string]*farm.Cell
	order    []string
	rename   map[string]string
	warnings []string
}

func (in *importing) warn(format string, args ...any) {
	in.warnings = append(in.warnings, fmt.Sprintf(format, args...))
}

func (in *importing) called(name string) string {
	if other, ok := in.rename[name]; ok {
		return other
	}
	return name
}

// cell is the cell of a name, made where there is none yet.
func (in *importing) cell(name string) *farm.Cell {
	name = in.called(name)
	c, ok := in.cells[name]
	if !ok {
		c = &farm.Cell{Name: name}
		*c = c.WithDefaults()
		in.cells[name] = c
		in.order = append(in.order, name)
	}
	return c
}

// defaults reads cells_default: nova's option is a list with commas, of which it drops white space and commas at the
// end.
func (in *importing) defaults(text string) {
	for item := range strings.SplitSeq(text, ",") {
		name := strings.TrimSpace(item)
		if name == "" {
			if strings.TrimSpace(text) != "" {
				in.warn("cells_default has an empty item, which is passed over")
			}
			continue
		}
		c := in.cell(name)
		if c.Default {
			in.warn("cells_default names cell %s twice", name)
		}
		c.Default = true
	}
}

// projects reads cells_projects: nova's option is a dictionary with commas and colons, and the filter parts each value
// at semicolons.
func (in *importing) projects(text string) error {
	seen := map[string]bool{}
	for item := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(item) == "" {
			if strings.TrimSpace(text) != "" {
				in.warn("cells_projects has an empty item, which nova does not start with; it is passed over")
			}
			continue
		}
		name, list, ok := strings.Cut(item, ":")
		name = strings.TrimSpace(name)
		switch {
		case !ok:
			return badCells("%q is not CELL:PROJECT;PROJECT", strings.TrimSpace(item))
		case name == "":
			return badCells("%q names no cell", strings.TrimSpace(item))
		case seen[name]:
			in.warn("cells_projects has cell %s twice, which nova does not start with; the projects of both are taken",
				name)
		}
		seen[name] = true
		in.mapped(name, list)
	}
	return nil
}

func (in *importing) mapped(name, list string) {
	c, some := in.cell(name), false
	for item := range strings.SplitSeq(list, ";") {
		project := strings.TrimSpace(item)
		switch {
		case project == "":
			continue
		case slices.Contains(c.Projects, in.called(project)):
			in.warn("cells_projects names project %s twice for cell %s", project, name)
		default:
			c.Projects = append(c.Projects, in.called(project))
		}
		some = true
	}
	if !some {
		in.warn("cells_projects has cell %s without a project: no project goes there by it", name)
	}
}

// neither closes the cells that are in neither option.
func (in *importing) neither(all []string) {
	for _, name := range all {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		if c := in.cell(name); !c.Default && len(c.Projects) == 0 {
			c.Closed, c.Reason = true, "in neither cells_default nor cells_projects"
		}
	}
	for _, name := range in.order {
		known := slices.ContainsFunc(all, func(n string) bool { return in.called(strings.TrimSpace(n)) == name })
		if len(all) > 0 && !known {
			in.warn("no cell is called %s: nova passes it over, and projects that it alone is for get no VM; it is "+
				"left in, for you to look at", name)
		}
	}
}

// odd warns of what works, and may not be meant.
func (in *importing) odd() {
	usual := false
	for _, name := range in.order {
		c := in.cells[name]
		usual = usual || c.Default
		if c.Default && len(c.Projects) > 0 {
			in.warn("cell %s is in both lists: it takes VMs of projects without cells of their own too, and is not "+
				"kept for %s", name, strings.Join(c.Projects, ", "))
		}
		if len(c.Projects) == 0 && !c.Default && !c.Closed {
			c.Closed, c.Reason = true, "no project goes there"
		}
		for _, other := range in.order {
			if name < other && strings.EqualFold(name, other) {
				in.warn("cells %s and %s differ in case alone; to nova and to grange they are two", name, other)
			}
		}
	}
	if !usual {
		in.warn("no default cell: projects without cells of their own get no VM")
	}
}

func badCells(format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: CodeBadCells,
		Message: "cells_projects: " + fmt.Sprintf(format, args...),
		Hint:    "write cells_projects=CELL:PROJECT;PROJECT,CELL:PROJECT"}
}

// ReadNova finds the two options in the text of a nova.conf, as oslo.config reads it: the last of several counts, lines
// that begin with white space go on, and a value may be in quotes. The filter reads them from [cells]; there those of
// other sections do not count.
func ReadNova(text []byte) (m CellMap, warnings []string, err error) {
	options := map[string]string{} // by section and key
	section, last := "DEFAULT", ""
	for line := range strings.SplitSeq(string(text), "\n") {
		line = strings.TrimRight(line, "\r")
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "":
			last = ""
		case line[0] == '#' || line[0] == ';':
		case line[0] == ' ' || line[0] == '\t':
			if last != "" {
				options[last] += "\n" + trimmed
			}
		case line[0] == '[':
			section, last = strings.Trim(trimmed, "[]"), ""
		default:
			i := strings.IndexAny(line, "=:")
			if i < 0 {
				return m, nil, badCells("line %q of nova.conf is not an option", trimmed)
			}
			last = section + "." + strings.TrimSpace(line[:i])
			options[last] = strings.TrimSpace(line[i+1:])
		}
	}
	found := false
	for key, to := range map[string]*string{"cells_default": &m.Default, "cells_projects": &m.Projects} {
		for _, section := range []string{"cells", "DEFAULT"} {
			value, ok := options[section+"."+key]
			if !ok {
				continue
			}
			found = true
			*to = unquoted(value)
			if strings.Contains(value, "$") {
				warnings = append(warnings, key+" refers to another option with $, which is not followed")
			}
			if section != "cells" {
				warnings = append(warnings,
					key+" is outside of [cells], where the filter of nova does not look; it is taken all the same")
			}
			break
		}
	}
	slices.Sort(warnings)
	if !found {
		return m, nil, badCells("nova.conf has neither cells_default nor cells_projects")
	}
	return m, warnings, nil
}

func unquoted(value string) string {
	if len(value) > 1 && value[0] == value[len(value)-1] && strings.ContainsRune(`"'`, rune(value[0])) {
		return value[1 : len(value)-1]
	}
	return value
}
