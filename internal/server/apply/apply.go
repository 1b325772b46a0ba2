// Package apply makes a farm as a farm file says, and tells what that changes for whom; and reads the farm back.
package apply

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
	"github.com/grange-project/grange/internal/server/accounts"
	"github.com/grange-project/grange/internal/server/action"
)

// Codes of errors about applying a farm file; see docs/errors.md.
const (
	CodeInUse       farm.Code = "in-use"       // what should go away is still needed
	CodeOtherPlan   farm.Code = "other-plan"   // an apply would do other things than were shown
	CodeNoIsolation farm.Code = "no-isolation" // a network is to keep VMs apart in a way that no host does
)

// Farm is what farm files declare: cells, projects, shapes, networks, groups, users, roles, settings, maxima.
type Farm struct {
	actions action.Actions
	brokers []string // names of those that a cell can have
}

func New(a action.Actions, brokers []string) *Farm { return &Farm{a, brokers} }

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
func (s *Farm) Apply(ctx context.Context, who farm.Identity, f farm.Farm, o ApplyOrder) (out Applied, err error) {
	if o.DryRun {
		err = s.actions.Look(ctx, who, policy.ReadFarm, func(c *action.Call) error {
			_, out, err = s.planned(c, f, o)
			return err
		})
		return out, err
	}
	revision, err := s.actions.Change(ctx, who, policy.ApplyFarm, func(c *action.Call) error {
		var t transition
		if t, out, err = s.planned(c, f, o); err != nil {
			return err
		}
		return carryOut(c, t, out.Changes)
	})
	out.Revision = revision
	return out, err
}

// transition is the farm as it is, and as it would be.
type transition struct{ have, after farmfile.Index }

// planned returns the farm as it is and as it would be, and what changes on the way there.
func (s *Farm) planned(c *action.Call, f farm.Farm, o ApplyOrder) (t transition, out Applied, err error) {
	if err := c.May(policy.Target{}); err != nil {
		return t, out, err
	}
	have, err := readFarm(c)
	if err != nil {
		return t, out, err
	}
	after, changes, err := farmfile.Diff(have, f, o.Prune)
	t, out.Changes = transition{farmfile.NewIndex(have), farmfile.NewIndex(after)}, changes
	if err == nil {
		err = farm.JoinErrors([]error{s.knowBrokers(f.Cells), noIsolation(t.have, f.Networks)})
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
	if err := expendable(c, t, out.Changes); err != nil {
		return t, out, err
	}
	out.Effects, err = effects(c, t)
	return t, out, err
}

// knowBrokers refuses cells whose VMs this server could give to nobody.
func (s *Farm) knowBrokers(cells []farm.FarmCell) error {
	var errs []error
	for _, c := range cells {
		if broker := c.WithDefaults().Broker; !slices.Contains(s.brokers, broker) {
			errs = append(errs, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadFarm,
				Message: fmt.Sprintf("cell %s: no broker is called %q; there are %s", c.Name, broker,
					strings.Join(s.brokers, ", ")),
				Hint: "docs/guide/cells.md explains every key; nothing was changed"})
		}
	}
	return farm.JoinErrors(errs)
}

// noIsolation refuses networks that are to keep VMs apart in a way that no host does: who wrote it would rely on it.
// What is stored from earlier releases stays, so that an exported file can be applied.
func noIsolation(have farmfile.Index, want []farm.FleetNetwork) error {
	var errs []error
	for _, n := range want {
		was := have.NetworkOf[n.Name]
		if n.Bridge != "" && n.VLAN != 0 && (was.Bridge == "" || n.VLAN != was.VLAN) {
			errs = append(errs, &farm.Error{Kind: farm.Invalid, Code: CodeNoIsolation,
				Message: fmt.Sprintf("network %s: no host carries out `vlan` beside `bridge`", n.Name),
				Hint:    "leave `bridge` out: hosts make the bridge of a VLAN"})
		}
		unknown := func(n farm.FleetNetwork) bool { return n.Closed && len(n.Addresses) == 0 }
		if unknown(n) && !unknown(was) {
			errs = append(errs, &farm.Error{Kind: farm.Invalid, Code: CodeNoIsolation,
				Message: fmt.Sprintf("network %s: no host carries out `closed` without `addresses`", n.Name),
				Hint:    "let the network lease addresses: what is local to a VM follows from its own"})
		}
	}
	return farm.JoinErrors(errs)
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

// readFarm is the whole farm as it is. No list is nil.
func readFarm(c *action.Call) (f farm.Farm, err error) {
	cells, err := c.Tx.Cells()
	if err != nil {
		return f, err
	}
	f.Cells = []farm.FarmCell{}
	for _, cell := range cells {
		f.Cells = append(f.Cells, farm.FarmCell{Cell: cell})
	}
	settings, err := readSettings(c)
	if err != nil {
		return f, err
	}
	most, err := Maxima(c.Tx)
	if err != nil {
		return f, err
	}
	f.Settings, f.Maxima = &settings, &most
	for _, read := range []func() error{
		func() error { f.Projects, err = action.OrNone(c.Tx.Projects()); return err },
		func() error { f.Shapes, err = action.OrNone(c.Tx.Shapes()); return err },
		func() error { f.Scores, err = action.OrNone(c.Tx.Scores()); return err },
		func() error { f.Networks, err = action.OrNone(c.Tx.Networks()); return err },
		func() error { f.Groups, err = action.OrNone(c.Tx.Groups("")); return err },
		func() error { f.Users, err = action.OrNone(c.Tx.Users()); return err },
		func() error { f.Grants, err = action.OrNone(c.Tx.Grants("")); return err },
		func() error { f.Mappings, err = action.OrNone(c.Tx.Mappings()); return err },
	} {
		if err := read(); err != nil {
			return f, err
		}
	}
	return f, nil
}

// carryOut writes what is to be changed. Users go last of what goes, for their grants go with them.
func carryOut(c *action.Call, t transition, changes []farmfile.Change) error {
	if len(changes) == 0 {
		return nil
	}
	target := c.Target
	for _, change := range changes {
		var err error
		if change.Op == farmfile.OpDelete {
			err = drop(c, t.have, change)
		} else {
			err = put(c, t.after, change)
		}
		if err != nil {
			return fmt.Errorf("%s %v: %w", change.Op, change, err)
		}
		c.Target = policy.Target{Name: change.String()}
		if err := c.Did(strings.TrimSpace(change.Op + " " + strings.Join(change.Details, ", "))); err != nil {
			return err
		}
	}
	c.Target = target
	return c.Did(farm.Count(len(changes), "change"))
}

func put(c *action.Call, after farmfile.Index, change farmfile.Change) error {
	switch change.Kind {
	case farmfile.KindCell:
		return c.PutCell(after.CellOf[change.Name].Cell)
	case farmfile.KindProject:
		return c.PutProject(after.ProjectOf[change.Name])
	case farmfile.KindShape:
		return c.PutShape(after.ShapeOf[change.Name])
	case farmfile.KindScore:
		return c.PutScore(after.ScoreOf[change.Name])
	case farmfile.KindNetwork:
		return c.PutNetwork(after.NetworkOf[change.Name])
	case farmfile.KindGroup:
		return c.Tx.PutGroup(after.GroupOf[change.Name])
	case farmfile.KindUser:
		return c.PutUser(after.UserOf[change.Name])
	case farmfile.KindGrant:
		return c.PutGrant(after.GrantOf[change.Name])
	case farmfile.KindMapping:
		return c.PutMapping(after.MappingOf[change.Name])
	case farmfile.KindSettings:
		return putSettings(c, *after.Settings)
	case farmfile.KindMaxima:
		return PutMaxima(c.Tx, *after.Maxima)
	}
	return fmt.Errorf("nothing is called %v", change)
}

func drop(c *action.Call, have farmfile.Index, change farmfile.Change) error {
	switch change.Kind {
	case farmfile.KindCell:
		return c.DeleteCell(change.Name)
	case farmfile.KindProject:
		return c.DeleteProject(change.Name)
	case farmfile.KindShape:
		return c.DeleteShape(change.Name)
	case farmfile.KindScore:
		return c.DeleteScore(change.Name)
	case farmfile.KindNetwork:
		return c.DeleteNetwork(change.Name)
	case farmfile.KindGroup:
		g := have.GroupOf[change.Name]
		return c.Tx.DeleteGroup(g.Project, g.Name)
	case farmfile.KindUser:
		return accounts.Drop(c, change.Name)
	case farmfile.KindGrant:
		return c.DeleteGrant(have.GrantOf[change.Name])
	case farmfile.KindMapping:
		return c.DeleteMapping(have.MappingOf[change.Name])
	}
	return fmt.Errorf("nothing is called %v", change)
}

// Export is the farm as it is, for Apply.
func (s *Farm) Export(ctx context.Context, who farm.Identity) (f farm.Farm, err error) {
	err = s.actions.Look(ctx, who, policy.ReadFarm, func(c *action.Call) error {
		if err := c.May(policy.Target{}); err != nil {
			return err
		}
		if f, err = readFarm(c); err != nil {
			return err
		}
		farmfile.Strip(&f)
		return nil
	})
	return f, err
}
