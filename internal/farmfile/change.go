package farmfile

import (
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// Change is one object that is made, changed or deleted.
type Change struct {
	Op      string   // OpCreate, OpChange or OpDelete
	Kind    string   // KindCell and the others
	Name    string   // "project/name" of a group, "ann operator project:atlas" of a grant; "" of settings and maxima
	Details []string // key by key: "packing: pack → spread"
}

// The operations of a Change.
const (
	OpCreate = "create"
	OpChange = "change"
	OpDelete = "delete"
)

// The kinds of a Change.
const (
	KindSettings = "settings"
	KindMaxima   = "maxima"
	KindProject  = "project"
	KindCell     = "cell"
	KindShape    = "shape"
	KindScore    = "score"
	KindNetwork  = "network"
	KindGroup    = "group"
	KindUser     = "user"
	KindGrant    = "grant"
	KindMapping  = "mapping"
)

func (c Change) String() string { return c.Kind + " " + c.Name }

// Index is a farm whose objects are found by the names that changes have.
type Index struct {
	farm.Farm
	CellOf    map[string]farm.FarmCell
	ProjectOf map[string]farm.Project
	ShapeOf   map[string]farm.Shape
	ScoreOf   map[string]farm.Score
	NetworkOf map[string]farm.FleetNetwork
	GroupOf   map[string]farm.ServerGroup
	UserOf    map[string]farm.User
	GrantOf   map[string]farm.Grant
	MappingOf map[string]farm.Mapping
}

// NewIndex returns the index of a farm.
func NewIndex(f farm.Farm) Index {
	return Index{Farm: f, CellOf: byName(f.Cells, cellName), ProjectOf: byName(f.Projects, projectName),
		ScoreOf: byName(f.Scores, scoreName),
		ShapeOf: byName(f.Shapes, shapeName), NetworkOf: byName(f.Networks, networkName),
		GroupOf: byName(f.Groups, groupName), UserOf: byName(f.Users, userName),
		GrantOf: byName(f.Grants, farm.Grant.String), MappingOf: byName(f.Mappings, farm.Mapping.String)}
}

func cellName(c farm.FarmCell) string        { return c.Name }
func projectName(p farm.Project) string      { return p.Name }
func shapeName(s farm.Shape) string          { return s.Name }
func scoreName(s farm.Score) string          { return s.Name }
func networkName(n farm.FleetNetwork) string { return n.Name }
func userName(u farm.User) string            { return u.Name }
func groupName(g farm.ServerGroup) string    { return g.Project + "/" + g.Name }

// named returns the one of a name; the zero value where there is none.
func named[T any](list []T, name string, of func(T) string) (v T) {
	if i := slices.IndexFunc(list, func(t T) bool { return of(t) == name }); i >= 0 {
		v = list[i]
	}
	return v
}

// byName returns objects by their names.
func byName[T any](list []T, of func(T) string) map[string]T {
	m := make(map[string]T, len(list))
	for _, v := range list {
		m[of(v)] = v
	}
	return m
}

// hasName reports whether there is one of a name.
func hasName[T any](list []T, name string, of func(T) string) bool {
	return slices.ContainsFunc(list, func(t T) bool { return of(t) == name })
}
