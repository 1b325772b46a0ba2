package agent

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/ledger"
	"github.com/grange-project/grange/internal/procstat"
	"github.com/grange-project/grange/internal/wire"
)

// find looks a VM up by name, or by the start of its ID or of a job's in it, for an action that only its owner may do.
func (a routes) find(ref string, c Caller) (*vm, error) {
	if v := a.Cloud.LookUp(ref); v != nil && a.maySee(c, nobody) {
		return nil, v.ServersOwn()
	}
	v, err := a.lookUp(ref, c)
	if err != nil {
		return nil, err
	}
	if !c.owns(v.owner) && !c.admin() {
		return nil, notYours("VM " + ref)
	}
	return v, nil
}

// lookUp finds it among those that the caller may see.
func (a *Agent) lookUp(ref string, c Caller) (*vm, error) {
	var found []*vm
	for _, v := range a.all() {
		if v.answersTo(ref) && c.sees(v) {
			found = append(found, v)
		}
	}
	switch len(found) {
	case 0:
		return nil, noVM(ref)
	case 1:
		return found[0], nil
	}
	return nil, &farm.Error{Kind: farm.Invalid, Code: farm.CodeNoVM, Message: strconv.Quote(ref) + " fits several VMs",
		Hint: "give more of the ID"}
}

// getVMs lists the VMs that the caller may see.
func (a routes) getVMs(w http.ResponseWriter, _ *http.Request, c Caller) error {
	vms := []*api.VM{}
	for _, v := range a.all() {
		if c.sees(v) {
			vms = append(vms, v.view(nil))
		}
	}
	for _, v := range a.Cloud.All() {
		if a.maySee(c, nobody) {
			vms = append(vms, v.View(c.admin()))
		}
	}
	slices.SortFunc(vms, func(x, y *api.VM) int { return x.Created.Compare(y.Created) })
	return answer(w, vms)
}

// getVM shows one. A VM that the caller may not see is as one that is not there.
func (a routes) getVM(w http.ResponseWriter, r *http.Request, c Caller) error {
	ref := r.PathValue("vm")
	if v := a.Cloud.LookUp(ref); v != nil {
		if !a.maySee(c, nobody) {
			return noVM(ref)
		}
		return answer(w, v.View(c.admin()))
	}
	v, err := a.lookUp(ref, c)
	if err != nil {
		return err
	}
	return answer(w, v.view(nil))
}

// nobody owns the VMs that belong to no account of this host: root alone sees them where others' VMs are private.
const nobody = 0

// maySee reports whether a caller may see what belongs to an account: everybody may, unless the site made VMs private.
func (a *Agent) maySee(c Caller, owner uint32) bool {
	return c.admin() || c.UID == owner || !a.config().PrivateVMs
}

func (c Caller) sees(v *vm) bool { return c.owns(v.owner) || v.agent.maySee(c, v.owner.User()) }

func noVM(ref string) error {
	return &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoVM,
		Message: "no VM " + strconv.Quote(ref) + " on this host",
		Hint:    "`grange vm list` shows them; it may have ended"}
}

// getUsage streams the records of VMs that ended within a time: one's own, or for root all. Those of a subordinate ID
// are its account's, who alone reads them.
func (a routes) getUsage(w http.ResponseWriter, r *http.Request, c Caller) error {
	if c.UID != c.User() {
		w.Header().Set("Content-Type", "application/x-ndjson")
		return nil
	}
	if c.share(a.Agent) == together { // they read one after the other
		done, err := a.admission.Ask(r.Context(), together)
		if err != nil {
			return err
		}
		defer done()
	}
	return a.Usage.Serve(w, r, c.UID, c.admin())
}

// getServices has each service connected to: only who shows them pays for one that hangs.
func (a routes) getServices(w http.ResponseWriter, _ *http.Request, _ Caller) error {
	return answer(w, a.checker.Check(a.config().Services))
}

func (a routes) getHost(w http.ResponseWriter, _ *http.Request, caller Caller) error {
	viewer := caller.User()
	if caller.admin() {
		viewer = nobody
	}
	room, holders, waiting := a.ledger.View(viewer)
	c := a.config()
	v := wire.Topology(room.Grantable())
	h := api.Host{Version: a.version, Accelerator: a.accelerator(), Reserved: c.ReservedCPUs.String(),
		Free: room.Free.String(), CPU: v.CPU, Sockets: v.Sockets, Cores: v.Cores, Nodes: v.Nodes, L3: v.L3,
		Distance: v.Distance, Holders: map[string]string{}, VMs: len(a.all()) - waiting + a.Cloud.Running(),
		Waiting: waiting, AgentMemory: procstat.Resident(), BackOffs: a.healing.backOffs(),
		DHCP: machine.DHCPServers(c.Network)}
	if space, err := a.ledger.DiskSpace(ledger.JobFiles); err == nil {
		h.DiskTotal, h.DiskFree = uint64(space.Pool), uint64(space.Free)
		if space.Short > 0 {
			h.Warnings = append(h.Warnings,
				fmt.Sprintf("disks of VMs were promised %v more than there is: something else fills the file system "+
					"of %s", space.Short.Rounded(), a.config().StateDir))
		}
	}
	for _, v := range a.all() {
		machine.CountGuest(&h, v.current())
	}
	for _, v := range a.Cloud.All() {
		machine.CountGuest(&h, v.Current())
	}
	h.Hypervisor = machine.DaemonView(a.hyper.Daemon())
	if !a.isKnown() {
		h.Recovering, h.Free = a.unknown(), ""
	}
	for _, s := range a.machines.TakesNothing() {
		h.Warnings = append(h.Warnings, "no more VMs: "+s)
	}
	if shared := a.machines.UsersWarning(); shared != "" {
		h.Warnings = append(h.Warnings, shared)
	}
	if wrong := a.linkWarning(); wrong != "" {
		h.Warnings = append(h.Warnings, wrong)
	}
	for cpu, name := range holders {
		h.Holders[strconv.Itoa(cpu)] = name
	}
	if !a.maySee(caller, nobody) {
		machine.HideOthers(&h)
	}
	return answer(w, h)
}
