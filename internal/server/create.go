package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
)

// vmsOfChange is how many VMs of one request count as one more change of its user: each is entered, and each that
// expires leaves an entry in the audit log.
const vmsOfChange = 10

// Create makes VMs, all or none: names, addresses and quota are taken in one transaction. On the server that leads
// they have their hosts, too, where some have room (docs/adr/0024-places-with-the-request.md); the others have none
// yet, and the server that leads finds one.
func (vs VMs) Create(ctx context.Context, who farm.Identity, r CreateVM) (Created, error) {
	if r.Count == 0 {
		r.Count = 1
	}
	if err := vs.server.actions.Charge(who, min(r.Count, maxCount)/vmsOfChange); err != nil {
		return Created{}, err
	}
	key := r.Once
	r.Once = ""
	var out Created
	revision, err := vs.server.change(ctx, who, policy.CreateVM, func(c *call) error {
		out = Created{}
		if err := c.May(policy.Target{Project: r.Project, Name: r.target()}); err != nil {
			return err
		}
		ids, again, err := c.Once(key, r, func() ([]string, error) { return creation{c, r}.run(&out) })
		if again {
			return creation{c, r}.repeat(ids, &out)
		}
		return err
	})
	if err != nil {
		return Created{}, err
	}
	for i := range out.VMs {
		if !out.Again {
			out.VMs[i].Revision, out.VMs[i].Changed = revision, revision
		}
	}
	return out, nil
}

// target is what the audit log names.
func (r CreateVM) target() string {
	if r.Count > 1 {
		return farm.Printable(fmt.Sprintf("%.80s/%.80s-1..%d", r.Project, r.Name, r.Count))
	}
	return farm.Printable(fmt.Sprintf("%.80s/%.80s", r.Project, r.Name))
}

// creation is an action that makes VMs.
type creation struct {
	*call
	asked CreateVM
}

// repeat answers a request that was answered before with its VMs as they are now. Those that are gone are left out.
func (c creation) repeat(ids []string, out *Created) error {
	out.Again = true
	for _, id := range ids {
		vm, err := c.Tx.VM(id)
		if action.Missing(err) {
			continue
		}
		if err != nil {
			return err
		}
		view, err := c.show(vm)
		if err != nil {
			return err
		}
		out.VMs = append(out.VMs, view)
	}
	return nil
}

func (c creation) run(out *Created) (ids []string, err error) {
	r := c.asked
	if err := r.check(c.Now); err != nil {
		return nil, err
	}
	if err := checkImage(r.Image); err != nil {
		return nil, err
	}
	draft, err := c.draft()
	if err != nil {
		return nil, err
	}
	if r.NewKey {
		if draft.Key, out.PrivateKey, err = newKey(r.Project + "/" + r.Name); err != nil {
			return nil, err
		}
		draft.Keys = append(draft.Keys, draft.Key)
	}
	give, err := c.leasing()
	if err != nil {
		return nil, err
	}
	for _, name := range r.names() {
		vm := draft
		vm.ID, vm.Name = api.NewID(), name
		if vm.Lease, err = give(vm); err != nil {
			return nil, err
		}
		host, err := c.insert(&vm)
		if err != nil {
			return nil, err
		}
		ids = append(ids, vm.ID)
		out.VMs = append(out.VMs, VMView{VM: vm, State: vm.State(false), HostName: host})
	}
	return ids, c.Did(fmt.Sprintf("image %s, shape %s", r.Image, r.Shape))
}

// draft is what all VMs of the request have in common, held against all that bounds it.
func (c creation) draft() (farm.VM, error) {
	r := c.asked
	vm := farm.VM{Project: r.Project, Owner: c.Caller(), Keys: r.Keys, Image: r.Image, Cell: r.Cell, Network: r.Network,
		Group: r.Group, Needs: r.Needs, Tags: r.Tags, UserData: r.UserData, Created: c.Now,
		Wanted: farm.Wanted{Power: farm.PowerOn}}
	p, err := c.FindProject(r.Project)
	if err != nil {
		return vm, err
	}
	cells, err := c.cellsFor(p, r.Cell)
	if err != nil {
		return vm, err
	}
	if err := allowImage(p, r.Image); err != nil {
		return vm, err
	}
	if vm.Shape, err = c.shape(p, cells); err != nil {
		return vm, err
	}
	if r.Network == "" {
		if err := vm.Shape.CheckBandwidth(); err != nil {
			return vm, err
		}
	}
	if err := resolve(c.call, &vm, r.Guest != (farm.GuestTopology{})); err != nil {
		return vm, err
	}
	if vm.Expires, err = expiry(p, r.Expires, c.Now); err != nil {
		return vm, err
	}
	if err := c.groupOf(p.Name, r.Group); err != nil {
		return vm, err
	}
	if vm.SecurityGroups, err = c.joins(p, nil, r.SecurityGroups, r.Network, r.Count); err != nil {
		return vm, err
	}
	return vm, c.quota(p, times(vm.Shape.Quota(), r.Count))
}

// cellsFor are the cells where a new VM of the project may go, the one asked for if any.
func (c *call) cellsFor(p farm.Project, asked string) ([]farm.Cell, error) {
	all, err := c.Cells()
	if err != nil {
		return nil, err
	}
	names, err := policy.ChooseCell(p.Name, asked, all)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(cell farm.Cell) bool { return !slices.Contains(names, cell.Name) }), nil
}

func (c creation) groupOf(project, name string) error {
	if name == "" {
		return nil
	}
	_, err := c.Group(project, name)
	if action.Missing(err) {
		return noGroup(project, name)
	}
	return err
}

func noGroup(project, name string) error {
	return &farm.Error{Kind: farm.NotFound, Code: CodeNoGroup,
		Message: fmt.Sprintf("project %s has no server group %.80q", project, name),
		Hint:    "`grange group create` makes one"}
}

// expiry is when the VM ends: as asked, or as old as the project's VMs may become, which nobody's may exceed.
func expiry(p farm.Project, asked, now time.Time) (time.Time, error) {
	if p.MaxAge == 0 {
		return asked, nil
	}
	most := now.Add(p.MaxAge)
	switch {
	case asked.IsZero():
		return most, nil
	case asked.After(most):
		return asked, &farm.Error{Kind: farm.Denied, Code: farm.CodeBeyondMaxima,
			Message: fmt.Sprintf("VMs of project %s live at most %v, until %s", p.Name, p.MaxAge,
				most.UTC().Format(time.RFC3339)), Hint: "name an earlier date, or none; it can be moved later"}
	}
	return asked, nil
}

// quota refuses what would pass the project's.
func (c *call) quota(p farm.Project, more farm.Quota) error {
	used, err := c.Used(p.Name)
	if err != nil {
		return err
	}
	if p.Quota.VMs == 0 && used.VMs+more.VMs > farm.MaxVMs {
		return &farm.Error{Kind: farm.Denied, Code: farm.CodeQuota,
			Message: fmt.Sprintf("project %s has %d VMs, and may have %d, for it has no quota of VMs", p.Name, used.VMs,
				farm.MaxVMs), Hint: "delete some, or ask an administrator for a quota of more"}
	}
	return policy.CheckQuota("project "+p.Name, p.Quota, used, more)
}

func times(q farm.Quota, n int) farm.Quota {
	return farm.Quota{VMs: q.VMs * n, CPUs: q.CPUs * n, Memory: q.Memory * farm.Bytes(n),
		Scratch: q.Scratch * farm.Bytes(n)}
}

// leasing is how VMs of the request get their leases; without a network they get none.
func (c creation) leasing() (give func(farm.VM) (farm.Lease, error), err error) {
	r := c.asked
	if r.Network == "" {
		return func(farm.VM) (farm.Lease, error) { return farm.Lease{}, nil }, nil
	}
	p, err := c.FindProject(r.Project)
	if err != nil {
		return nil, err
	}
	network, others, err := c.networkFor(p, r.Network)
	if err != nil {
		return nil, err
	}
	l := newLeases(c.call, network, others)
	return func(vm farm.VM) (farm.Lease, error) {
		if err := c.free(network.Name, r.Address.String(), r.Address.IsValid()); err != nil {
			return farm.Lease{}, err
		}
		return l.give(vm, r.Address)
	}, nil
}

// networkFor is a network that the project may have, and all others of the farm.
func (c creation) networkFor(p farm.Project, name string) (network farm.FleetNetwork, others []farm.FleetNetwork,
	err error) {
	all, err := c.Networks()
	if err != nil {
		return network, nil, err
	}
	i := slices.IndexFunc(all, func(n farm.FleetNetwork) bool { return n.Name == name })
	if i < 0 {
		return network, nil, &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoNetwork,
			Message: fmt.Sprintf("no network %.80q", name), Hint: "name another, or none"}
	}
	network = all[i]
	if len(p.Networks) > 0 && !slices.Contains(p.Networks, name) || len(p.Networks) == 0 && network.Closed {
		return network, nil, &farm.Error{Kind: farm.Denied, Code: farm.CodeNoNetwork,
			Message: fmt.Sprintf("project %s may not have network %s", p.Name, name),
			Hint:    "name another, or ask an administrator"}
	}
	return network, slices.Delete(all, i, i+1), nil
}

// free refuses a static address that another VM holds. Only a caller who may see that VM is told which one it is, and
// the audit log of the caller's project is not.
func (c creation) free(network, address string, asked bool) error {
	if !asked {
		return nil
	}
	holder, err := c.VMLeased(network, address, "")
	if action.Missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	hint := "name another address, or none"
	if c.Sees(holder) {
		hint = fmt.Sprintf("VM %s has it; %s", action.Label(holder), hint)
	}
	return &farm.Error{Kind: farm.Conflict, Code: CodeAddressTaken,
		Message: fmt.Sprintf("address %s of network %s is leased to another VM", address, network), Hint: hint}
}

// insert makes the row, with a place where there is one at once, and names the holder where the VM's name is taken. It
// returns the name of the VM's host; "": it has none yet.
func (c creation) insert(vm *farm.VM) (host string, err error) {
	holder, err := c.VMNamed(vm.Project, vm.Name)
	switch {
	case action.Missing(err):
		host = c.s.PlaceNew(c.Tx, vm)
		return host, c.InsertVM(*vm)
	case err != nil:
		return "", err
	}
	what := "made by " + holder.Owner
	if holder.Wanted.Power == farm.PowerDeleted {
		what = "which is being deleted"
	}
	return "", &farm.Error{Kind: farm.Conflict, Code: CodeNameTaken,
		Message: fmt.Sprintf("there is a VM %s already, %s", action.Label(*vm), what), Hint: "take another name"}
}
