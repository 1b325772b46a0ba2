package agent

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/grange-project/grange/internal/agent/machine"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/wire"
)

// fleetLookUp finds a cloud VM by the name of its domain, by PROJECT/NAME, or by the start of its ID; nil when
// there is none, or more than one.
func (a *Agent) fleetLookUp(ref string) *fleetVM {
	var found []*fleetVM
	for _, v := range a.allFleet() {
		w, _ := v.newest()
		if v.name == ref || w.Project+"/"+w.Name == ref || len(ref) >= 4 && strings.HasPrefix(v.id, ref) {
			found = append(found, v)
		}
	}
	if len(found) != 1 {
		return nil
	}
	return found[0]
}

// fleetRunning is how many of cloud VMs run.
func (a *Agent) fleetRunning() (n int) {
	for _, v := range a.allFleet() {
		if v.current() != nil {
			n++
		}
	}
	return n
}

// serversOwn refuses what the host's own commands want of a cloud VM: it would be undone at once.
func (v *fleetVM) serversOwn() error {
	w, _ := v.newest()
	return &farm.Error{Kind: farm.Denied, Code: CodeServersVM,
		Message: fmt.Sprintf("VM %s is the server's: %s of project %s", v.name, w.Name, w.Project),
		Hint: fmt.Sprintf("order it there, as with `grange vm stop %s/%s`; this host goes on with what the server "+
			"wanted last", w.Project, w.Name)}
}

// view is the VM as a caller on its host sees it. Reasons may quote what the guest wrote, to its console or to us,
// which is root's to read as the console is: others see the reason's code alone.
func (v *fleetVM) view(c Caller) *api.VM {
	o := v.observed()
	v.mu.Lock()
	defer v.mu.Unlock()
	r, w := v.record, v.wanted
	out := &api.VM{ID: v.id, Name: v.name, Purpose: "cloud", State: o.State, Image: r.Image, Digest: r.Digest,
		Shape: r.Shape.Name, User: w.Owner, Command: w.Project + "/" + w.Name, Created: r.Created, CPUs: r.Shape.CPUs,
		Memory: uint64(r.Shape.Memory), Scratch: uint64(r.Shape.Scratch), Plan: wire.Plan(r.Plan),
		Cloud: &api.CloudVM{Name: w.Name, Project: w.Project, Owner: w.Owner, Hostname: w.Hostname, Address: w.Address,
			MAC: w.MAC, Bridge: w.Bridge, Wanted: w.Power, Ready: o.Ready, Reason: o.Reason}}
	if !c.admin() {
		out.Cloud.Reason = codeOf(o.Reason)
	}
	if v.machine != nil {
		v.machine.Show(out, r.Shape)
		if out.State == string(farm.VMRunning) && out.Unresponsive != nil {
			out.State = machine.StateUnresponsive
		}
	}
	return out
}

// codeOf is the code that a reason begins with, as reasonOf wrote it; "" where there is none.
func codeOf(reason string) string {
	code, _, _ := strings.Cut(reason, ": ")
	if strings.Trim(code, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return ""
	}
	return code
}

// getConsole shows what a cloud VM writes, or wrote while it ran. root alone may: the VM's owner asks the
// server.
func (v *fleetVM) getConsole(w http.ResponseWriter, r *http.Request, c Caller) error {
	if !v.agent.maySee(c, nobody) {
		return noVM(r.PathValue("vm"))
	}
	if !c.admin() {
		return notYours("VM " + v.name)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	m := v.current()
	if m == nil {
		_, err := w.Write(machine.LastOfConsole(v.agent.fleetDir(v.id)))
		return err
	}
	control := http.NewResponseController(w)
	return m.Console.Follow(r.Context(), w, func() { control.Flush() }, r.URL.Query().Get("follow") != "true")
}
