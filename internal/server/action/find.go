package action

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

// Codes of errors of every kind of action; see docs/errors.md.
const (
	CodeChanged   farm.Code = "changed"    // another revision than If-Match says
	CodeNoProject farm.Code = "no-project" // no project of that name
	CodeNoToken   farm.Code = "no-token"   // no token, or join token, of the caller's
)

// Missing reports whether an error is of a lookup that found nothing.
func Missing(err error) bool { return farm.IsKind(err, farm.NotFound) }

// OrNone is a list that was read, never nil.
func OrNone[T any](list []T, err error) ([]T, error) {
	if list == nil {
		list = []T{}
	}
	return list, err
}

// FindCell looks a cell up, if the caller may do the action to it.
func (c *Call) FindCell(name string) (farm.Cell, error) {
	if err := c.May(CellTarget(name)); err != nil {
		return farm.Cell{}, err
	}
	cell, err := c.Tx.Cell(name)
	if Missing(err) {
		err = NoCell(name)
	}
	return cell, err
}

// FindProject looks a project up, whatever the caller may do to it.
func (c *Call) FindProject(name string) (farm.Project, error) {
	p, err := c.Tx.Project(name)
	if Missing(err) {
		err = NoProject(name)
	}
	return p, err
}

// NoProject is the error of a project that is not there.
func NoProject(name string) error {
	return &farm.Error{Kind: farm.NotFound, Code: CodeNoProject,
		Message: fmt.Sprintf("no project %.80q", name),
		Hint:    "`grange project list` shows those that you may see"}
}

// NoCell is the error of a cell that is not there.
func NoCell(name string) error {
	return &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoSuchCell,
		Message: fmt.Sprintf("no cell %.80q", name), Hint: "`grange cell list` shows those that there are"}
}
