package cloud

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/network"
	"github.com/grange-project/grange/internal/wire"
)

// LookUp finds a cloud VM by the name of its domain, by PROJECT/NAME, or by the start of its ID; nil when
// there is none, or more than one.
func (h *Host) LookUp(ref string) *VM {
	var found []*VM
	for _, v := range h.All() {
		w, _ := v.newest()
		if v.Name == ref || w.Project+"/"+w.Name == ref || len(ref) >= 4 && strings.HasPrefix(v.ID, ref) {
			found = append(found, v)
		}
	}
	if len(found) != 1 {
		return nil
	}
	return found[0]
}

// Running is how many of cloud VMs run.
func (h *Host) Running() (n int) {
	for _, v := range h.All() {
		if v.Current() != nil {
			n++
		}
	}
	return n
}

// ServersOwn refuses what the host's own commands want of a cloud VM: it would be undone at once.
func (v *VM) ServersOwn() error {
	w, _ := v.newest()
	return &farm.Error{Kind: farm.Denied, Code: CodeServersVM,
		Message: fmt.Sprintf("VM %s is the server's: %s of project %s", v.Name, w.Name, w.Project),
		Hint: fmt.Sprintf("order it there, as with `grange vm stop %s/%s`; this host goes on with what the server "+
			"wanted last", w.Project, w.Name)}
}

// View is the VM as somebody on its host sees it. Reasons may quote what the guest wrote, to its console or to us,
// which is root's to read as the console is: others see the reason's code alone.
func (v *VM) View(admin bool) *api.VM {
	o := v.observed()
	v.mu.Lock()
	defer v.mu.Unlock()
	r, w := v.record, v.wanted
	out := &api.VM{ID: v.ID, Name: v.Name, Purpose: "cloud", State: o.State, Image: r.Image, Digest: r.Digest,
		Shape: r.Shape.Name, User: w.Owner, Command: w.Project + "/" + w.Name, Created: r.Created, CPUs: r.Shape.CPUs,
		Memory: uint64(r.Shape.Memory), Scratch: uint64(r.Shape.Scratch), Plan: wire.Plan(r.Plan),
		Cloud: &api.CloudVM{Name: w.Name, Project: w.Project, Owner: w.Owner, Hostname: w.Hostname, Address: w.Address,
			MAC: w.MAC, Bridge: hostNetwork(w).Bridge(), Wanted: w.Power, Ready: o.Ready, Reason: o.Reason}}
	if !admin {
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

// Console writes what the VM writes to its console, or wrote while it ran, until it ends; once: what there is.
func (v *VM) Console(ctx context.Context, w io.Writer, flush func(), once bool) error {
	if m := v.Current(); m != nil {
		return m.Console.Follow(ctx, w, flush, once)
	}
	_, err := w.Write(machine.LastOfConsole(v.host.Dir(v.ID)))
	return err
}

// UsersOfImage are the VMs that are made from an image, those that are stopped, too: their disks read through to it.
func (h *Host) UsersOfImage(digest string) []string {
	var names []string
	for _, v := range h.All() {
		if r := v.recordNow(); r.Digest == digest {
			names = append(names, r.Wanted.Name)
		}
	}
	return names
}

// NetworkVM is the VM's machine for its network.
func (v *VM) NetworkVM() network.VM { return networkVM(v.Name, v.recordNow()) }

// Starting is how many VMs are being started.
func (h *Host) Starting() int { return len(h.starts) }

// usageOf is what the record of an interval of the VM says from its beginning.
func usageOf(v *VM) api.Usage {
	r := v.recordNow()
	return api.Usage{Kind: api.UsageVM, Part: 1, VM: v.ID, Name: r.Wanted.Name, Project: r.Wanted.Project,
		User: r.Wanted.Owner, Batch: r.Job, Image: r.Image, Digest: r.Digest, Shape: r.Wanted.Shape.Name,
		Cores: r.Shape.CPUs, Memory: uint64(r.Shape.Memory), Scratch: uint64(r.Shape.DiskSpace())}
}
