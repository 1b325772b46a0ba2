package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/farmfile"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/server/hostlink"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/wire"
)

// expendable refuses to take away what is still needed, and to hand VMs from one broker to another.
func expendable(c *action.Call, t transition, changes []farmfile.Change) error {
	var errs []error
	for _, change := range changes {
		needed, err := needed(c, t.have, change)
		if err != nil {
			return err
		}
		if change.Op == farmfile.OpDelete && needed != "" {
			errs = append(errs, inUse("%v cannot go away: it has %s", change, needed))
		}
	}
	for _, cell := range t.after.Cells {
		old, ok := t.have.CellOf[cell.Name]
		if !ok || old.Broker == cell.Broker {
			continue
		}
		n, err := c.CountVMs(store.VMFilter{Cell: cell.Name})
		if err != nil {
			return err
		}
		if n > 0 {
			errs = append(errs, inUse(
				"cell %s cannot go from broker %s to %s: it has %s, which that one has not placed", cell.Name,
				old.Broker, cell.Broker, farm.Count(n, "VM")))
		}
	}
	return farm.JoinErrors(errs)
}

func inUse(format string, args ...any) error {
	return &farm.Error{Kind: farm.Conflict, Code: CodeInUse, Message: fmt.Sprintf(format, args...),
		Hint: "delete or move that first; nothing was changed"}
}

// needed is what would be left behind, for people; "": nothing.
func needed(c *action.Call, have farmfile.Index, change farmfile.Change) (string, error) {
	if change.Op != farmfile.OpDelete {
		return "", nil
	}
	var left []string
	vms := func(f store.VMFilter) error {
		n, err := c.CountVMs(f)
		if n > 0 {
			left = append(left, farm.Count(n, "VM"))
		}
		return err
	}
	var err error
	switch change.Kind {
	case farmfile.KindCell:
		hosts, err := c.Tx.Hosts(change.Name)
		if err != nil {
			return "", err
		}
		if len(hosts) > 0 {
			left = append(left, farm.Count(len(hosts), "host"))
		}
		if err := vms(store.VMFilter{Cell: change.Name}); err != nil {
			return "", err
		}
		tokens, err := joinTokens(c, change.Name)
		if err != nil {
			return "", err
		}
		if tokens > 0 {
			left = append(left, farm.Count(tokens, "join token"))
		}
	case farmfile.KindProject:
		err = vms(store.VMFilter{Project: change.Name})
	case farmfile.KindGroup:
		g := have.GroupOf[change.Name]
		err = vms(store.VMFilter{Project: g.Project, Group: g.Name})
	case farmfile.KindNetwork:
		leases, lerr := c.Leases(change.Name)
		if err = lerr; len(leases) > 0 {
			left = append(left, farm.Count(len(leases), "VM"))
		}
	}
	return strings.Join(left, " and "), err
}

// joinTokens are those by which hosts may still join a cell.
func joinTokens(c *action.Call, cell string) (n int, err error) {
	tokens, err := c.Tx.JoinTokens()
	for _, k := range tokens {
		if k.Cell == cell && k.Uses < max(k.Count, 1) && k.Expires.After(c.Now) {
			n++
		}
	}
	return n, err
}

// effects are what changes for whom.
func effects(c *action.Call, t transition) ([]string, error) {
	moves := movesOf(t)
	said := sayMoves(moves)
	for _, more := range []func() ([]string, error){
		func() ([]string, error) { return staying(c, moves) },
		func() ([]string, error) { return overQuota(c, t) },
		func() ([]string, error) { return outside(c, t) },
	} {
		lines, err := more()
		if err != nil {
			return nil, err
		}
		said = append(said, lines...)
	}
	return append(said, lockOut(c.Who, t)...), nil
}

// move is a project whose new VMs go elsewhere.
type move struct {
	project string
	isNew   bool
	was, is []string
	nowhere string // why there is no cell any more; "": there is one
}

// movesOf are the projects whose new VMs would go elsewhere, in the order of their names.
func movesOf(t transition) (moves []move) {
	was, is := plainCells(t.have.Cells), plainCells(t.after.Cells)
	for _, p := range t.after.Projects {
		_, known := t.have.ProjectOf[p.Name]
		m := move{project: p.Name, isNew: !known}
		if known {
			m.was, _ = policy.CellsFor(p.Name, was)
		}
		var err error
		m.is, err = policy.CellsFor(p.Name, is)
		if e, ok := errors.AsType[*farm.Error](err); ok {
			m.nowhere = e.Message[strings.Index(e.Message, ": ")+2:]
		}
		if m.isNew || !slices.Equal(m.was, m.is) {
			moves = append(moves, m)
		}
	}
	return moves
}

func plainCells(cells []farm.FarmCell) []farm.Cell {
	out := make([]farm.Cell, 0, len(cells))
	for _, c := range cells {
		out = append(out, c.Cell)
	}
	return out
}

// sayMoves reports them, those alike in one line.
func sayMoves(moves []move) (said []string) {
	of := map[string][]string{} // projects by what happens to them
	var order []string
	for _, m := range moves {
		what := m.what()
		if of[what] == nil {
			order = append(order, what)
		}
		of[what] = append(of[what], m.project)
	}
	for _, what := range order {
		who := "project " + of[what][0]
		if len(of[what]) > 1 {
			who = "projects " + farm.Enumerate(of[what])
		}
		said = append(said, who+what)
	}
	return said
}

func (m move) what() string {
	list := func(cells []string) string {
		const most = 10
		if more := len(cells) - most; more > 0 {
			return "[" + strings.Join(cells[:most], " ") + fmt.Sprintf(" and %d more]", more)
		}
		return "[" + strings.Join(cells, " ") + "]"
	}
	switch {
	case m.isNew && m.nowhere != "":
		return " could make no VMs: " + m.nowhere
	case m.isNew:
		return ": new VMs would go to " + list(m.is)
	case m.nowhere != "":
		return " could make no VMs any more: " + m.nowhere
	case len(m.was) == 0:
		return ": new VMs have nowhere to go today, would go to " + list(m.is)
	}
	return ": new VMs go to " + list(m.was) + " today, would go to " + list(m.is)
}

// staying reports VMs in cells that take no more of their project's.
func staying(c *action.Call, moves []move) (said []string, err error) {
	for _, m := range moves {
		for _, cell := range m.was {
			if slices.Contains(m.is, cell) {
				continue
			}
			n, err := c.CountVMs(store.VMFilter{Project: m.project, Cell: cell})
			if err != nil {
				return nil, err
			}
			if n > 0 {
				said = append(said, fmt.Sprintf(
					"project %s: %s in cell %s would stay there, as long as people want them", m.project,
					farm.Count(n, "VM"), cell))
			}
		}
	}
	return said, nil
}

// overQuota reports projects that have more than they would be allowed.
func overQuota(c *action.Call, t transition) (said []string, err error) {
	for _, p := range t.after.Projects {
		if old, ok := t.have.ProjectOf[p.Name]; !ok || old.Quota == p.Quota {
			continue
		}
		used, err := c.Used(p.Name)
		if err != nil {
			return nil, err
		}
		var over []string
		q := p.Quota
		for _, x := range []struct {
			what     string
			has, may farm.Bytes
			count    bool
		}{{"VMs", farm.Bytes(used.VMs), farm.Bytes(q.VMs), true},
			{"CPUs", farm.Bytes(used.CPUs), farm.Bytes(q.CPUs), true}, {"of memory", used.Memory, q.Memory, false},
			{"of scratch", used.Scratch, q.Scratch, false}} {
			switch {
			case x.may == 0 || x.has <= x.may:
			case x.count:
				over = append(over, fmt.Sprintf("%d %s of %d", x.has, x.what, x.may))
			default:
				over = append(over, fmt.Sprintf("%v %s of %v", x.has, x.what, x.may))
			}
		}
		if len(over) > 0 {
			said = append(said, fmt.Sprintf("project %s has more than its new quota: %s; it could make no more of that",
				p.Name, strings.Join(over, ", ")))
		}
	}
	return said, nil
}

// outside reports leased addresses that would be in no pool any more.
func outside(c *action.Call, t transition) (said []string, err error) {
	for _, n := range t.after.Networks {
		old, ok := t.have.NetworkOf[n.Name]
		if !ok || slices.Equal(old.Addresses, n.Addresses) || len(n.Addresses) == 0 {
			continue
		}
		leases, err := c.Leases(n.Name)
		if err != nil {
			return nil, err
		}
		lost := 0
		for _, l := range leases {
			if l.Address.IsValid() && !inPools(n.Addresses, l.Address.Addr()) {
				lost++
			}
		}
		if lost > 0 {
			said = append(said, fmt.Sprintf(
				"network %s: addresses of %s lie outside of its new pools, and would stay as they are", n.Name,
				farm.Count(lost, "VM")))
		}
	}
	return said, nil
}

func inPools(pools []farm.AddressPool, a netip.Addr) bool {
	return slices.ContainsFunc(pools, func(p farm.AddressPool) bool { return p.Has(a) })
}

// lockOut reports when nobody could undo this any more, or the caller could not.
func lockOut(who farm.Identity, t transition) []string {
	admin := func(f farmfile.Index, user string) bool {
		return slices.ContainsFunc(f.Grants, func(g farm.Grant) bool {
			everywhere := g.Role == farm.RoleAdmin && g.Project == "" && g.Cell == ""
			return everywhere && (user == "" || g.User == user) && !f.UserOf[g.User].Disabled
		})
	}
	switch {
	case admin(t.have, "") && !admin(t.after, ""):
		return []string{"nobody would be admin everywhere but root on the server's own socket"}
	case who.User != "" && !who.Root && admin(t.have, who.User) && !admin(t.after, who.User):
		return []string{"you would not be admin everywhere any more"}
	}
	return nil
}

// readSettings are those of all hosts.
func readSettings(c *action.Call) (farm.Settings, error) {
	v, err := hostlink.HostSettings(c.Tx)
	return wire.ParseSettings(v), err
}

func putSettings(c *action.Call, s farm.Settings) error {
	text, err := json.Marshal(wire.Settings(s))
	if err != nil {
		return err
	}
	return c.PutSetting(hostlink.SettingHosts, text)
}
