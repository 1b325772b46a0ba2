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
	"github.com/grange-project/grange/internal/farmfile"
	"github.com/grange-project/grange/internal/policy"
)

// ApplyOrder says how a farm file is brought.
type ApplyOrder struct {
	DryRun bool // tell what would be done, and do nothing
	Prune  bool // delete what the file lacks, of the kinds that it has
	// Applied.Plan of a dry run that somebody looked at: anything else is refused with CodeOtherPlan; "": no
	// comparison
	Plan string
}

// Applied is what an apply did, or would do.
type Applied struct {
	Changes  []farmfile.Change
	Effects  []string // what changes for whom, in sentences
	Plan     string   // stands for Changes
	Revision int64    // of the store; 0 of a dry run
}

// Apply makes the farm as f says, in one transaction, or tells what that would change. An object that something else
// needs is not deleted: CodeInUse.
func (s *Server) Apply(ctx context.Context, who farm.Identity, f farm.Farm, o ApplyOrder) (out Applied, err error) {
	if o.DryRun {
		err = s.look(ctx, who, policy.ReadFarm, func(c *call) error {
			_, out, err = c.planned(f, o)
			return err
		})
		return out, err
	}
	revision, err := s.change(ctx, who, policy.ApplyFarm, func(c *call) error {
		var t transition
		if t, out, err = c.planned(f, o); err != nil {
			return err
		}
		return c.carryOut(t, out.Changes)
	})
	out.Revision = revision
	return out, err
}

// transition is the farm as it is, and as it would be.
type transition struct{ have, after farmfile.Index }

// planned returns the farm as it is and as it would be, and what changes on the way there.
func (c *call) planned(f farm.Farm, o ApplyOrder) (t transition, out Applied, err error) {
	if err := c.may(policy.Target{}); err != nil {
		return t, out, err
	}
	have, err := c.farm()
	if err != nil {
		return t, out, err
	}
	after, changes, err := farmfile.Diff(have, f, o.Prune)
	t, out.Changes = transition{farmfile.NewIndex(have), farmfile.NewIndex(after)}, changes
	if err == nil {
		err = farm.JoinErrors([]error{c.s.knowBrokers(f.Cells), noIsolation(t.have, f.Networks)})
	}
	if err != nil {
		return t, out, err
	}
	out.Plan = planOf(out.Changes)
	if o.Plan != "" && o.Plan != out.Plan {
		return t, out, &farm.Error{Kind: farm.Conflict, Code: CodeOtherPlan,
			Hint: "look at `grange diff` again",
			Message: fmt.Sprintf("this would make %s now, and not what was shown",
				farm.Count(len(out.Changes), "change"))}
	}
	if err := c.expendable(t, out.Changes); err != nil {
		return t, out, err
	}
	out.Effects, err = c.effects(t)
	return t, out, err
}

// knowBrokers refuses cells whose VMs this server could give to nobody.
func (s *Server) knowBrokers(cells []farm.FarmCell) error {
	var errs []error
	for _, c := range cells {
		if broker := c.WithDefaults().Broker; !slices.Contains(s.known, broker) {
			errs = append(errs, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadFarm,
				Message: fmt.Sprintf("cell %s: no broker is called %q; there are %s", c.Name, broker,
					strings.Join(s.known, ", ")),
				Hint: "docs/guide/cells.md explains every key; nothing was changed"})
		}
	}
	return farm.JoinErrors(errs)
}

// noIsolation refuses networks that are to keep VMs apart: no host does that yet, and who wrote it would rely on it.
// What is stored from earlier releases stays, so that an exported file can be applied.
func noIsolation(have farmfile.Index, want []farm.FleetNetwork) error {
	var errs []error
	for _, n := range want {
		was := have.NetworkOf[n.Name]
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
	return farm.JoinErrors(errs)
}

func notIsolated(network, key, hint string) error {
	return &farm.Error{Kind: farm.Invalid, Code: CodeNoIsolation,
		Message: fmt.Sprintf("network %s: no host carries out `%s`", network, key), Hint: hint}
}

// planOf stands for changes: the same ones have the same.
func planOf(changes []farmfile.Change) string {
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
func (c *call) carryOut(t transition, changes []farmfile.Change) error {
	if len(changes) == 0 {
		return nil
	}
	target := c.target
	for _, change := range changes {
		var err error
		if change.Op == farmfile.OpDelete {
			err = c.drop(t.have, change)
		} else {
			err = c.put(t.after, change)
		}
		if err != nil {
			return fmt.Errorf("%s %v: %w", change.Op, change, err)
		}
		c.target = policy.Target{Name: change.String()}
		if err := c.did(strings.TrimSpace(change.Op + " " + strings.Join(change.Details, ", "))); err != nil {
			return err
		}
	}
	c.target = target
	return c.did(farm.Count(len(changes), "change"))
}

func (c *call) put(after farmfile.Index, change farmfile.Change) error {
	switch change.Kind {
	case farmfile.KindCell:
		return c.PutCell(after.CellOf[change.Name].Cell)
	case farmfile.KindProject:
		return c.PutProject(after.ProjectOf[change.Name])
	case farmfile.KindShape:
		return c.PutShape(after.ShapeOf[change.Name])
	case farmfile.KindNetwork:
		return c.PutNetwork(after.NetworkOf[change.Name])
	case farmfile.KindGroup:
		return c.Tx.PutGroup(after.GroupOf[change.Name])
	case farmfile.KindUser:
		return c.PutUser(after.UserOf[change.Name])
	case farmfile.KindGrant:
		return c.PutGrant(after.GrantOf[change.Name])
	case farmfile.KindSettings:
		return c.putSettings(*after.Settings)
	case farmfile.KindMaxima:
		return putMaxima(c.Tx, *after.Maxima)
	}
	return fmt.Errorf("nothing is called %v", change)
}

func (c *call) drop(have farmfile.Index, change farmfile.Change) error {
	switch change.Kind {
	case farmfile.KindCell:
		return c.DeleteCell(change.Name)
	case farmfile.KindProject:
		return c.DeleteProject(change.Name)
	case farmfile.KindShape:
		return c.DeleteShape(change.Name)
	case farmfile.KindNetwork:
		return c.DeleteNetwork(change.Name)
	case farmfile.KindGroup:
		g := have.GroupOf[change.Name]
		return c.Tx.DeleteGroup(g.Project, g.Name)
	case farmfile.KindUser:
		return c.dropUser(change.Name)
	case farmfile.KindGrant:
		return c.DeleteGrant(have.GrantOf[change.Name])
	}
	return fmt.Errorf("nothing is called %v", change)
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
		farmfile.Strip(&f)
		return nil
	})
	return f, err
}
