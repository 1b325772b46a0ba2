package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// CellsFor is where new VMs of a project may go, in the order of cells. A project that any cell names goes to those
// cells alone; the others go to the default cells. A cell that names projects and is a default one as well takes both.
// Closed cells, and those that are drained, take no new VM, and nothing takes their place: a project whose cells are
// all closed gets farm.CodeCellsClosed, which names them, and never falls back to the defaults. farm.CodeNoCell: no
// cell names the project, and there is no default one. Names are compared letter by letter.
func CellsFor(project string, cells []farm.Cell) (names []string, err error) {
	mine, mapped := cellsOf(project, cells)
	if len(mine) == 0 {
		return nil, &farm.Error{Kind: farm.Conflict, Code: farm.CodeNoCell,
			Message: fmt.Sprintf("new VMs of project %q have nowhere to go: no cell is for this project, and no "+
				"cell is a default one", project),
			Hint: "an administrator can name the project in a cell, or make a cell a default one, with `grange " +
				"apply`"}
	}
	var closed []string
	for _, c := range mine {
		if why := closedBy(c); why != "" {
			closed = append(closed, c.Name+" "+why)
			continue
		}
		names = append(names, c.Name)
	}
	if len(names) == 0 {
		return nil, allClosed(project, mapped, closed)
	}
	return names, nil
}

// ChooseCell is CellsFor, for somebody who asked for one of the cells; "" asks for none.
func ChooseCell(project, asked string, cells []farm.Cell) (names []string, err error) {
	if asked == "" {
		return CellsFor(project, cells)
	}
	i := slices.IndexFunc(cells, func(c farm.Cell) bool { return c.Name == asked })
	mine, mapped := cellsOf(project, cells)
	isMine := slices.ContainsFunc(mine, func(c farm.Cell) bool { return c.Name == asked })
	hint := "name no cell, and it is chosen"
	if len(mine) > 0 {
		hint += "; project " + project + " may use " + nameList(cellNames(mine))
	}
	switch {
	case i < 0:
		return nil, &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoSuchCell,
			Message: fmt.Sprintf("no cell %q", asked), Hint: hint}
	case !isMine && mapped:
		return nil, &farm.Error{Kind: farm.Denied, Code: farm.CodeForeignCell, Hint: hint,
			Message: fmt.Sprintf("project %q may not use cell %s: it has cells of its own", project, asked)}
	case !isMine:
		return nil, &farm.Error{Kind: farm.Denied, Code: farm.CodeForeignCell, Hint: hint,
			Message: fmt.Sprintf("project %q may not use cell %s: it is not a default cell, and does not name the project",
				project, asked)}
	}
	if why := closedBy(cells[i]); why != "" {
		return nil, &farm.Error{Kind: farm.Conflict, Code: farm.CodeCellsClosed, Hint: hint,
			Message: fmt.Sprintf("cell %s %s: it takes no new VMs", asked, why)}
	}
	return []string{asked}, nil
}

// cellsOf are the cells of a project, open or not, and whether they name it.
func cellsOf(project string, cells []farm.Cell) (mine []farm.Cell, mapped bool) {
	for _, c := range cells {
		if slices.Contains(c.Projects, project) {
			mine = append(mine, c)
		}
	}
	if len(mine) > 0 {
		return mine, true
	}
	for _, c := range cells {
		if c.Default {
			mine = append(mine, c)
		}
	}
	return mine, false
}

// closedBy returns why a cell takes no new VMs; "": it takes them.
func closedBy(c farm.Cell) string {
	word, reason := "", c.Reason
	switch {
	case c.Drain.Active():
		word = "is being drained"
		if c.Drain.Reason != "" {
			reason = c.Drain.Reason
		}
	case c.Closed:
		word = "is closed"
	default:
		return ""
	}
	if reason != "" {
		word += " (" + reason + ")"
	}
	return word
}

func allClosed(project string, mapped bool, closed []string) error {
	message := fmt.Sprintf("new VMs of project %q have nowhere to go: ", project)
	switch {
	case mapped && len(closed) == 1:
		message += "the one cell that is for it takes none: "
	case mapped:
		message += "all the cells that are for it take none: "
	case len(closed) == 1:
		message += "the one default cell takes none: "
	default:
		message += "all default cells take none: "
	}
	return &farm.Error{Kind: farm.Conflict, Code: farm.CodeCellsClosed, Message: message + strings.Join(closed, ", "),
		Hint: "wait until a cell is open again, see `grange cell list`; what runs there goes on"}
}

func cellNames(cells []farm.Cell) []string {
	var names []string
	for _, c := range cells {
		names = append(names, c.Name)
	}
	return names
}

// nameList is names for people; a farm may have hundreds.
func nameList(names []string) string {
	const most = 12
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}
