package store

import (
	"database/sql"
	"errors"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// Small things are kept whole: as JSON under a kind and a name. noun says how one kind of them is.
type noun[T any] struct {
	kind   Kind
	what   string                     // for people
	name   func(T) string             // unique in its kind
	owner  func(T) string             // whose it is; nil: nobody's
	revise func(v *T, revision int64) // nil: it does not carry its revision
	change func(v T, c *Change)       // nil: nothing more is said of a change
}

// get is the one with a name.
func (n noun[T]) get(t *sqlTx, name string) (T, error) {
	v, err := n.scan(t.row("SELECT revision, body FROM objects WHERE kind = $1 AND name = $2", string(n.kind), name))
	return v, found(err, n.what, name)
}

func (n noun[T]) scan(r scanner) (v T, err error) {
	var revision int64
	var body string
	if err := r.Scan(&revision, &body); err != nil {
		return v, err
	}
	err = decode(body, &v)
	if n.revise != nil {
		n.revise(&v, revision)
	}
	return v, err
}

// list is all of them, in the order of their names; those of an owner, when it is not "".
func (n noun[T]) list(t *sqlTx, owner string) (all []T, err error) {
	read := func(r scanner) error {
		v, err := n.scan(r)
		all = append(all, v)
		return err
	}
	if owner != "" {
		err = t.each(read, "SELECT revision, body FROM objects WHERE kind = $1 AND owner = $2 ORDER BY name",
			string(n.kind), owner)
		return all, err
	}
	err = t.each(read, "SELECT revision, body FROM objects WHERE kind = $1 ORDER BY name", string(n.kind))
	return all, err
}

// listBelow is all whose names begin with a path and "/", in the order of their names.
func (n noun[T]) listBelow(t *sqlTx, path string) (all []T, err error) {
	err = t.each(func(r scanner) error {
		v, err := n.scan(r)
		all = append(all, v)
		return err
	}, "SELECT revision, body FROM objects WHERE kind = $1 AND name > $2 AND name < $3 ORDER BY name", string(n.kind),
		path+"/", path+"0") // "0" is behind "/"
	return all, err
}

// put writes one, new or not. What is there already and is the same is left alone: no change, no revision.
func (n noun[T]) put(t *sqlTx, v T) error {
	name, owner := n.name(v), ""
	if n.owner != nil {
		owner = n.owner(v)
	}
	if n.revise != nil {
		n.revise(&v, 0)
	}
	body, err := encode(v)
	if err != nil {
		return err
	}
	var there string
	err = t.row("SELECT body FROM objects WHERE kind = $1 AND name = $2", string(n.kind), name).Scan(&there)
	if err == nil && there == body {
		return nil
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if _, err := t.exec(`INSERT INTO objects (kind, name, owner, revision, body) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (kind, name) DO UPDATE SET owner = excluded.owner, revision = excluded.revision, body = excluded.body`,
		string(n.kind), name, owner, t.revision, body); err != nil {
		return err
	}
	n.tell(t, v, false)
	return nil
}

func (n noun[T]) tell(t *sqlTx, v T, deleted bool) {
	c := Change{Kind: n.kind, ID: n.name(v), Deleted: deleted}
	if n.change != nil {
		n.change(v, &c)
	}
	t.changed(c)
}

// drop takes one away.
func (n noun[T]) drop(t *sqlTx, name string) error {
	v, err := n.get(t, name)
	if err != nil {
		return err
	}
	if _, err := t.exec("DELETE FROM objects WHERE kind = $1 AND name = $2", string(n.kind), name); err != nil {
		return err
	}
	n.tell(t, v, true)
	return nil
}

// dropOf takes all of an owner away.
func (n noun[T]) dropOf(t *sqlTx, owner string) error {
	all, err := n.list(t, owner)
	if err != nil {
		return err
	}
	for _, v := range all {
		if err := n.drop(t, n.name(v)); err != nil {
			return err
		}
	}
	return nil
}

// farmRows are what a farm file declares, and settings.
type farmRows struct{ *sqlTx }

func cells() noun[farm.Cell] {
	return noun[farm.Cell]{kind: KindCell, what: "cell", name: func(c farm.Cell) string { return c.Name },
		revise: func(c *farm.Cell, r int64) { c.Revision = r }}
}

// Cell is the one with a name.
func (t farmRows) Cell(name string) (farm.Cell, error) { return cells().get(t.sqlTx, name) }

// Cells are all.
func (t farmRows) Cells() ([]farm.Cell, error) { return cells().list(t.sqlTx, "") }

// PutCell writes a cell, new or not.
func (t farmRows) PutCell(c farm.Cell) error { return cells().put(t.sqlTx, c) }

// DeleteCell takes a cell away. It does not look at hosts and VMs.
func (t farmRows) DeleteCell(name string) error { return cells().drop(t.sqlTx, name) }

func projects() noun[farm.Project] {
	return noun[farm.Project]{kind: KindProject, what: "project", name: func(p farm.Project) string { return p.Name },
		revise: func(p *farm.Project, r int64) { p.Revision = r },
		change: func(p farm.Project, c *Change) { c.Project = p.Name }}
}

// Project is the one with a name.
func (t farmRows) Project(name string) (farm.Project, error) { return projects().get(t.sqlTx, name) }

// Projects are all.
func (t farmRows) Projects() ([]farm.Project, error) { return projects().list(t.sqlTx, "") }

// PutProject writes a project, new or not.
func (t farmRows) PutProject(p farm.Project) error {
	was, err := t.Project(p.Name)
	if err == nil && !slices.Equal(was.SSHFrom, p.SSHFrom) {
		err = t.tellHosts(p.Name, farm.DefaultSecurityGroup)
	}
	if err != nil && !farm.IsKind(err, farm.NotFound) {
		return err
	}
	return projects().put(t.sqlTx, p)
}

// DeleteProject takes a project away, with its security groups. It does not look at VMs.
func (t farmRows) DeleteProject(name string) error {
	if err := securityGroups().dropOf(t.sqlTx, name); err != nil {
		return err
	}
	return projects().drop(t.sqlTx, name)
}

func shapes() noun[farm.Shape] {
	return noun[farm.Shape]{kind: KindShape, what: "shape", name: func(s farm.Shape) string { return s.Name }}
}

// Shape is the one with a name.
func (t farmRows) Shape(name string) (farm.Shape, error) { return shapes().get(t.sqlTx, name) }

// Shapes are all.
func (t farmRows) Shapes() ([]farm.Shape, error) { return shapes().list(t.sqlTx, "") }

// PutShape writes a shape, new or not. VMs keep the one they were made with.
func (t farmRows) PutShape(s farm.Shape) error { return shapes().put(t.sqlTx, s) }

// DeleteShape takes a shape away.
func (t farmRows) DeleteShape(name string) error { return shapes().drop(t.sqlTx, name) }

func networks() noun[farm.FleetNetwork] {
	return noun[farm.FleetNetwork]{kind: KindNetwork, what: "network",
		name:   func(n farm.FleetNetwork) string { return n.Name },
		revise: func(n *farm.FleetNetwork, r int64) { n.Revision = r }}
}

// Network is the one with a name.
func (t farmRows) Network(name string) (farm.FleetNetwork, error) {
	all, err := t.Networks()
	if err != nil {
		return farm.FleetNetwork{}, err
	}
	i := slices.IndexFunc(all, func(n farm.FleetNetwork) bool { return n.Name == name })
	if i < 0 {
		return farm.FleetNetwork{}, absent("network", name)
	}
	return all[i], nil
}

// Networks are all. What is in the elements is not to be changed.
func (t farmRows) Networks() ([]farm.FleetNetwork, error) {
	return t.store.networks.list(t.sqlTx, networks())
}

// PutNetwork writes a network, new or not. Leases stay.
func (t farmRows) PutNetwork(n farm.FleetNetwork) error { return networks().put(t.sqlTx, n) }

// DeleteNetwork takes a network away. It does not look at VMs.
func (t farmRows) DeleteNetwork(name string) error { return networks().drop(t.sqlTx, name) }

func groups() noun[farm.ServerGroup] {
	return noun[farm.ServerGroup]{kind: KindGroup, what: "server group",
		name:   func(g farm.ServerGroup) string { return g.Project + "/" + g.Name },
		revise: func(g *farm.ServerGroup, r int64) { g.Revision = r },
		change: func(g farm.ServerGroup, c *Change) { c.Project = g.Project }}
}

// Group is the one with a name in a project.
func (t farmRows) Group(project, name string) (farm.ServerGroup, error) {
	return groups().get(t.sqlTx, project+"/"+name)
}

// Groups are those of a project; "": of all projects.
func (t farmRows) Groups(project string) ([]farm.ServerGroup, error) {
	if project == "" {
		return groups().list(t.sqlTx, "")
	}
	return groups().listBelow(t.sqlTx, project)
}

// PutGroup writes a server group, new or not.
func (t farmRows) PutGroup(g farm.ServerGroup) error { return groups().put(t.sqlTx, g) }

// DeleteGroup takes a server group away. It does not look at VMs.
func (t farmRows) DeleteGroup(project, name string) error {
	return groups().drop(t.sqlTx, project+"/"+name)
}
