package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
)

// ApplyOrder says how a farm file is brought.
type ApplyOrder struct {
	DryRun bool // tell what would be done, and do nothing
	Prune  bool // delete what the file lacks, of the kinds that it has
	// Applied.Plan of a dry run that somebody looked at: anything else is refused with farm.CodeOtherPlan; "": no
	// comparison
	Plan string
}

// Applied is what an apply did, or would do.
type Applied struct {
	Changes  []FarmChange
	Effects  []string // what changes for whom, in sentences
	Plan     string   // stands for Changes
	Revision int64    // of the store; 0 of a dry run
}

// FarmChange is one object that is made, changed or deleted.
type FarmChange struct {
	Op      string   // "create", "change", "delete"
	Kind    string   // "cell", "project", "shape", "network", "group", "user", "grant", "settings", "maxima"
	Name    string   // "project/name" of a group, "ann operator project:atlas" of a grant
	Details []string // key by key: "packing: pack → spread"
}

// The operations of a FarmChange.
const (
	opCreate = "create"
	opChange = "change"
	opDelete = "delete"
)

func (c FarmChange) String() string { return c.Kind + " " + c.Name }

// Apply makes the farm as f says, in one transaction, or tells what that would change. An object that something else
// needs is not deleted: farm.CodeInUse.
func (s *Server) Apply(ctx context.Context, who farm.Identity, f farm.Farm, o ApplyOrder) (out Applied, err error) {
	if o.DryRun {
		err = s.look(ctx, who, policy.ReadFarm, func(c *call) error {
			_, out, err = c.planned(f, o)
			return err
		})
		return out, err
	}
	revision, err := s.change(ctx, who, policy.ApplyFarm, func(c *call) error {
		var after farm.Farm
		if after, out, err = c.planned(f, o); err != nil {
			return err
		}
		return c.carryOut(findable(after), out.Changes)
	})
	out.Revision = revision
	return out, err
}

// planned is the farm as it would be, and what changes on the way there.
func (c *call) planned(f farm.Farm, o ApplyOrder) (after farm.Farm, out Applied, err error) {
	if err := c.may(policy.Target{}); err != nil {
		return after, out, err
	}
	have, err := c.farm()
	if err != nil {
		return after, out, err
	}
	after, out.Changes, err = diff(have, f, o.Prune)
	if err == nil {
		err = together([]error{c.s.knowBrokers(f.Cells), noIsolation(have.Networks, f.Networks)})
	}
	if err != nil {
		return after, out, err
	}
	out.Plan = planOf(out.Changes)
	if o.Plan != "" && o.Plan != out.Plan {
		return after, out, &farm.Error{Kind: farm.Conflict, Code: farm.CodeOtherPlan,
			Hint: "look at `grange diff` again",
			Message: fmt.Sprintf("this would make %s now, and not what was shown",
				farm.Count(len(out.Changes), "change"))}
	}
	if err := c.expendable(have, after, out.Changes); err != nil {
		return after, out, err
	}
	out.Effects, err = c.effects(have, after)
	return after, out, err
}

// knowBrokers refuses cells whose VMs this server could give to nobody.
func (s *Server) knowBrokers(cells []farm.FarmCell) error {
	var errs []error
	for _, c := range cells {
		if broker := c.WithDefaults().Broker; !slices.Contains(s.known, broker) {
			errs = append(errs, badFarm("cell %s: no broker is called %q; there are %s", c.Name, broker,
				strings.Join(s.known, ", ")))
		}
	}
	return together(errs)
}

// noIsolation refuses networks that are to keep VMs apart: no host does that yet, and who wrote it would rely on it.
// What is stored from earlier releases stays, so that an exported file can be applied.
func noIsolation(have, want []farm.FleetNetwork) error {
	stored := byName(have, networkName)
	var errs []error
	for _, n := range want {
		was := stored[n.Name]
		if n.VLAN != 0 && n.VLAN != was.VLAN {
			errs = append(errs, notIsolated(n.Name, "vlan",
				"put the VLAN's interface into a bridge on each host, and name that bridge"))
		}
		if n.Closed && !was.Closed {
			errs = append(errs, notIsolated(n.Name, "closed",
				"keep the network from others by its bridge and your routers; `networks` of a project says who may "+
					"use it"))
		}
	}
	return together(errs)
}

func notIsolated(network, key, hint string) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeNoIsolation,
		Message: fmt.Sprintf("network %s: no host carries out `%s`", network, key), Hint: hint}
}

// planOf stands for changes: the same ones have the same.
func planOf(changes []FarmChange) string {
	text, err := json.Marshal(changes)
	if err != nil { // strings alone
		panic(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// farm is the whole farm as it is. No list is nil.
func (c *call) farm() (f farm.Farm, err error) {
	cells, err := c.Tx.Cells()
	if err != nil {
		return f, err
	}
	f.Cells = []farm.FarmCell{}
	for _, cell := range cells {
		f.Cells = append(f.Cells, farm.FarmCell{Cell: cell})
	}
	settings, err := c.settings()
	if err != nil {
		return f, err
	}
	most, err := maxima(c.Tx)
	if err != nil {
		return f, err
	}
	f.Settings, f.Maxima = &settings, &most
	for _, read := range []func() error{
		func() error { f.Projects, err = orNone(c.Tx.Projects()); return err },
		func() error { f.Shapes, err = orNone(c.Tx.Shapes()); return err },
		func() error { f.Networks, err = orNone(c.Tx.Networks()); return err },
		func() error { f.Groups, err = orNone(c.Tx.Groups()); return err },
		func() error { f.Users, err = orNone(c.Tx.Users()); return err },
		func() error { f.Grants, err = orNone(c.Tx.Grants("")); return err },
	} {
		if err := read(); err != nil {
			return f, err
		}
	}
	return f, nil
}

func orNone[T any](list []T, err error) ([]T, error) {
	if list == nil {
		list = []T{}
	}
	return list, err
}

// carryOut writes what is to be changed. Users go last of what goes, for their grants go with them.
func (c *call) carryOut(after byNames, changes []FarmChange) error {
	if len(changes) == 0 {
		return nil
	}
	target := c.target
	for _, change := range changes {
		var err error
		if change.Op == opDelete {
			err = c.drop(change)
		} else {
			err = c.put(after, change)
		}
		if err != nil {
			return fmt.Errorf("%s %v: %w", change.Op, change, err)
		}
		c.target = policy.Target{Name: change.String()}
		if err := c.did(strings.TrimSpace(change.Op + " " + join(change.Details))); err != nil {
			return err
		}
	}
	c.target = target
	return c.did(farm.Count(len(changes), "change"))
}

// byNames is a farm in which changes are found.
type byNames struct {
	farm.Farm
	cells    map[string]farm.FarmCell
	projects map[string]farm.Project
	shapes   map[string]farm.Shape
	networks map[string]farm.FleetNetwork
	groups   map[string]farm.ServerGroup
	users    map[string]farm.User
	grants   map[string]farm.Grant
}

func findable(f farm.Farm) byNames {
	return byNames{Farm: f, cells: byName(f.Cells, cellName), projects: byName(f.Projects, projectName),
		shapes: byName(f.Shapes, shapeName), networks: byName(f.Networks, networkName),
		groups: byName(f.Groups, groupName), users: byName(f.Users, userName),
		grants: byName(f.Grants, farm.Grant.String)}
}

func (c *call) put(after byNames, change FarmChange) error {
	switch change.Kind {
	case kindCell:
		return c.PutCell(after.cells[change.Name].Cell)
	case kindProject:
		return c.PutProject(after.projects[change.Name])
	case kindShape:
		return c.PutShape(after.shapes[change.Name])
	case kindNetwork:
		return c.PutNetwork(after.networks[change.Name])
	case kindGroup:
		return c.Tx.PutGroup(after.groups[change.Name])
	case kindUser:
		return c.PutUser(after.users[change.Name])
	case kindGrant:
		return c.PutGrant(after.grants[change.Name])
	case kindSettings:
		return c.putSettings(*after.Settings)
	case kindMaxima:
		return putMaxima(c.Tx, *after.Maxima)
	}
	return fmt.Errorf("nothing is called %v", change)
}

func (c *call) drop(change FarmChange) error {
	switch change.Kind {
	case kindCell:
		return c.DeleteCell(change.Name)
	case kindProject:
		return c.DeleteProject(change.Name)
	case kindShape:
		return c.DeleteShape(change.Name)
	case kindNetwork:
		return c.DeleteNetwork(change.Name)
	case kindGroup:
		project, name := groupParts(change.Name)
		return c.Tx.DeleteGroup(project, name)
	case kindUser:
		return c.dropUser(change.Name)
	case kindGrant:
		return c.dropGrant(change.Name)
	}
	return fmt.Errorf("nothing is called %v", change)
}

// dropGrant takes a role away, by its text, which begins with the user's name.
func (c *call) dropGrant(text string) error {
	user, _, _ := strings.Cut(text, " ")
	grants, err := c.Grants(user)
	if err != nil {
		return err
	}
	return c.DeleteGrant(named(grants, text, farm.Grant.String))
}

// Export is the farm as it is, for Apply.
func (s *Server) Export(ctx context.Context, who farm.Identity) (f farm.Farm, err error) {
	err = s.look(ctx, who, policy.ReadFarm, func(c *call) error {
		if err := c.may(policy.Target{}); err != nil {
			return err
		}
		if f, err = c.farm(); err != nil {
			return err
		}
		forFile(&f)
		return nil
	})
	return f, err
}

// forFile leaves out what a farm file does not say: an open cell is not mentioned, and settings that are none.
func forFile(f *farm.Farm) {
	for i := range f.Cells {
		c := &f.Cells[i]
		c.Drain, c.Revision = farm.Drain{}, 0
		if c.Closed {
			shut := false
			c.Open = &shut
		} else {
			c.Reason = ""
		}
	}
	for i := range f.Projects {
		f.Projects[i].Revision = 0
	}
	for i := range f.Networks {
		f.Networks[i].Revision = 0
	}
	for i := range f.Groups {
		f.Groups[i].Revision = 0
	}
	for i := range f.Users {
		f.Users[i].Revision = 0
	}
	if f.Settings.IsZero() {
		f.Settings = nil
	}
	if len(maximaFields(*f.Maxima)) == 0 {
		f.Maxima = nil
	}
}
