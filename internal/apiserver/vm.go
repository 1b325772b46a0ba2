package apiserver

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/store"
)

// VMRef names a VM in a path.
type VMRef struct {
	VM string `path:"vm" maxLength:"200" doc:"ID, or PROJECT%2FNAME" example:"atlas/web-1"`
}

// vmAnswer is a VM as it is now.
type vmAnswer = one[fleet.VM]

func answerVM(v server.VMView, err error) (*vmAnswer, error) {
	if err != nil {
		return nil, err
	}
	return oneOf(vmView(v), v.Revision), nil
}

type createVM struct {
	Once
	Body fleet.VMRequest
}

// VMChoice chooses virtual machines.
type VMChoice struct {
	Project string   `query:"project" maxLength:"100"`
	Cell    string   `query:"cell" maxLength:"100"`
	Host    string   `query:"host" maxLength:"100" doc:"by name or ID"`
	Owner   string   `query:"owner" maxLength:"100"`
	Group   string   `query:"group" maxLength:"100"`
	State   string   `query:"state" enum:"placing,starting,running,stopping,stopped,deleting,gone,failed,unknown,lost"`
	Name    string   `query:"name" maxLength:"100" doc:"a pattern, as web-*"`
	Tag     []string `query:"tag,explode" maxItems:"20" doc:"KEY=VALUE, or KEY for any value; of several all must hold"`
}

// filter is for package server.
func (f VMChoice) filter(p Paging) server.VMFilter {
	out := server.VMFilter{Project: f.Project, Cell: f.Cell, Host: f.Host, Owner: f.Owner, Group: f.Group,
		State: farm.VMState(f.State), Name: f.Name, After: p.After, Limit: p.Limit}
	for _, tag := range f.Tag {
		if out.Tags == nil {
			out.Tags = map[string]string{}
		}
		key, value, _ := strings.Cut(tag, "=")
		out.Tags[key] = value
	}
	return out
}

type listVMs struct {
	Paging
	VMChoice
	Watching
}

func (a *API) vmRoutes() {
	handle(a, route{method: "POST", path: "/v1/vms", id: "create-vms", tag: "VMs", status: http.StatusCreated,
		summary: "Make virtual machines, all or none",
		about: "Those that no host had room for at once have none when this answers; watch them. A private key that " +
			"was asked for is in the first VM of the answer, once."}, a.createVMs)
	a.listVMsRoute()
	handle(a, route{method: "GET", path: "/v1/vms/{vm}", id: "get-vm", tag: "VMs", summary: "One virtual machine"},
		func(ctx context.Context, who farm.Identity, in *struct{ VMRef }) (*vmAnswer, error) {
			return answerVM(a.server.VMs.Get(ctx, who, in.VM))
		})
	handle(a, route{method: "PATCH", path: "/v1/vms/{vm}", id: "update-vm", tag: "VMs",
		summary: "Change a virtual machine's tags, date of expiry or security groups"},
		func(ctx context.Context, who farm.Identity, in *struct {
			VMRef
			Seen
			Body fleet.VMUpdate
		}) (*vmAnswer, error) {
			return answerVM(a.server.VMs.Update(ctx, who, in.VM, in.seen,
				server.UpdateVM{Expires: in.Body.Expires, Tags: in.Body.Tags,
					SecurityGroups: in.Body.SecurityGroups}))
		})
	a.vmVerb("DELETE", "", "delete-vm", "Delete a virtual machine, its disks and its lease", a.server.VMs.Delete)
	a.vmVerb("POST", "/start", "start-vm", "Start a virtual machine that is stopped", a.server.VMs.Start)
	a.vmVerb("POST", "/stop", "stop-vm", "Stop a virtual machine; its disks and its place stay", a.server.VMs.Stop)
	a.vmVerb("POST", "/restart", "restart-vm", "Restart a virtual machine", a.server.VMs.Restart)
	handle(a, route{method: "POST", path: "/v1/vms/{vm}/resize", id: "resize-vm", tag: "VMs",
		summary: "Give a virtual machine another size, on its own host"},
		func(ctx context.Context, who farm.Identity, in *struct {
			VMRef
			Seen
			Body fleet.VMResize
		}) (*vmAnswer, error) {
			return answerVM(a.server.VMs.Resize(ctx, who, in.VM, in.seen,
				server.ResizeVM{Shape: in.Body.Shape, CPUs: in.Body.CPUs, Memory: farm.Bytes(in.Body.Memory)}))
		})
	handle(a, route{method: "POST", path: "/v1/vms/{vm}/rebuild", id: "rebuild-vm", tag: "VMs",
		summary: "Make a virtual machine anew, with fresh disks, under its name and address"},
		func(ctx context.Context, who farm.Identity, in *struct {
			VMRef
			Seen
			Body *fleet.VMRebuild
		}) (*vmAnswer, error) {
			image := ""
			if in.Body != nil {
				image = in.Body.Image
			}
			return answerVM(a.server.VMs.Rebuild(ctx, who, in.VM, in.seen, image))
		})
	a.moveRoutes()
	a.whyRoutes()
	a.streamRoute()
}

// vmVerb is a route without a body that wants something else of a VM.
func (a *API) vmVerb(method, verb, id, summary string,
	do func(context.Context, farm.Identity, string, int64) (server.VMView, error)) {
	handle(a, route{method: method, path: "/v1/vms/{vm}" + verb, id: id, tag: "VMs", summary: summary},
		func(ctx context.Context, who farm.Identity, in *struct {
			VMRef
			Seen
		}) (*vmAnswer, error) {
			return answerVM(do(ctx, who, in.VM, in.seen))
		})
}

func (a *API) createVMs(ctx context.Context, who farm.Identity, in *createVM) (*one[fleet.Page[fleet.VM]], error) {
	order, err := orderOf(in.Body)
	if err != nil {
		return nil, err
	}
	order.Once = in.Key
	made, err := a.server.VMs.Create(ctx, who, order)
	if err != nil {
		return nil, err
	}
	out := fleet.Page[fleet.VM]{Items: []fleet.VM{}}
	for _, v := range made.VMs {
		out.Items = append(out.Items, vmView(v))
		out.Revision = max(out.Revision, v.Revision)
	}
	if len(out.Items) > 0 {
		out.Items[0].PrivateKey = made.PrivateKey
	}
	return oneOf(out, 0), nil
}

// orderOf reads what is asked for.
func orderOf(r fleet.VMRequest) (server.CreateVM, error) {
	o := server.CreateVM{Project: r.Project, Name: r.Name, Count: cmp.Or(r.Count, 1), Image: r.Image, Shape: r.Shape,
		CPUs: r.CPUs, Memory: farm.Bytes(r.Memory), CPUModel: r.CPUModel, Display: r.Display,
		Guest: farm.GuestTopology{Sockets: r.Sockets, Cores: r.Cores, Threads: r.Threads}, Cell: r.Cell,
		Network: r.Network, Group: r.Group, SecurityGroups: r.SecurityGroups, Needs: r.Needs, Tags: r.Tags,
		Keys: r.Keys, NewKey: r.NewKey,
		UserData: r.UserData, Disks: r.Disks}
	if r.Scratch != nil {
		scratch := farm.Bytes(*r.Scratch)
		o.Scratch = &scratch
	}
	if r.Expires != nil {
		o.Expires = *r.Expires
	}
	if r.Address != "" {
		address, err := netip.ParseAddr(r.Address)
		if err != nil {
			return o, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadAddress,
				Message: "body.address: invalid address " + r.Address, Hint: "write it as 192.0.2.7"}
		}
		o.Address = address
	}
	return o, nil
}

// chooses is the filter of a watch. One that is gone is told to all: nobody knows any more what it was.
func (f VMChoice) chooses(w server.Watched) bool {
	if w.Kind != string(store.KindVM) || w.VM == nil {
		return w.Kind == string(store.KindVM) && w.Deleted
	}
	v := w.VM
	is := func(wanted string, have ...string) bool { return wanted == "" || slices.Contains(have, wanted) }
	if named, err := path.Match(f.Name, v.Name); f.Name != "" && (err != nil || !named) {
		return false
	}
	for _, tag := range f.Tag {
		key, value, valued := strings.Cut(tag, "=")
		if have, ok := v.Tags[key]; !ok || valued && have != value {
			return false
		}
	}
	return is(f.Project, v.Project) && is(f.Cell, v.Cell) && is(f.Host, v.Host, v.HostName) && is(f.Owner, v.Owner) &&
		is(f.Group, v.Group) && is(f.State, string(v.State))
}
