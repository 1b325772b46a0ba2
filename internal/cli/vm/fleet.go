package vm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
)

// projectFlag is for commands that name VMs of the fleet.
func projectFlag(cmd *cobra.Command, project *string) {
	cmd.Flags().StringVarP(project, "project", "p", os.Getenv("GRANGE_PROJECT"),
		"default `PROJECT` of VMs given by name only, or $GRANGE_PROJECT")
}

// fullName is how people name a VM of the fleet.
func fullName(v fleet.VM) string { return v.Project + "/" + v.Name }

// findVM finds the one VM that a reference names: an ID, PROJECT/NAME, or a NAME that is only once among those that the
// caller sees.
func findVM(ctx context.Context, c *fleet.Client, ref, project string) (fleet.VM, error) {
	vms, err := findVMs(ctx, c, []string{ref}, project)
	if err != nil {
		return fleet.VM{}, err
	}
	if len(vms) > 1 {
		return fleet.VM{}, app.Usage("name it "+fullName(vms[0])+", or give --project", "%d VMs are called %q",
			len(vms), ref)
	}
	return vms[0], nil
}

// fleetVM is findVM for commands that need nothing of the server before.
func (a vmCommands) fleetVM(ctx context.Context, ref, project string) (*fleet.Client, fleet.VM, error) {
	c, err := a.Fleet()
	if err != nil {
		return nil, fleet.VM{}, err
	}
	v, err := findVM(ctx, c, ref, project)
	return c, v, err
}

// findVMs finds the VMs that references name; patterns may name several. Each must name one at least.
func findVMs(ctx context.Context, c *fleet.Client, refs []string, project string) ([]fleet.VM, error) {
	var found []fleet.VM
	for _, ref := range refs {
		vms, err := lookUp(ctx, c, ref, project)
		if err != nil {
			return nil, err
		}
		for _, v := range vms {
			if !slices.ContainsFunc(found, func(o fleet.VM) bool { return o.ID == v.ID }) {
				found = append(found, v)
			}
		}
	}
	return found, nil
}

func lookUp(ctx context.Context, c *fleet.Client, ref, project string) ([]fleet.VM, error) {
	if of, name, ok := strings.Cut(ref, "/"); ok {
		project, ref = of, name
	}
	if farm.IsID(ref) || project != "" && !strings.ContainsAny(ref+project, "*?[") {
		if !farm.IsID(ref) {
			ref = project + "/" + ref
		}
		v, err := c.VMs.Get(ctx, ref)
		return []fleet.VM{v}, err
	}
	if _, err := path.Match(project+ref, ""); err != nil {
		return nil, app.Usage("write it as web-*", "invalid pattern %q", ref)
	}
	filter := fleet.VMFilter{Name: ref}
	if !strings.ContainsAny(project, "*?[") {
		filter.Project = project
	}
	vms, _, err := c.VMs.List(ctx, filter)
	if err != nil {
		return nil, err
	}
	vms = slices.DeleteFunc(vms, func(v fleet.VM) bool {
		named, _ := path.Match(project, v.Project)
		return project != "" && !named
	})
	if len(vms) == 0 {
		return nil, &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoVM,
			Message: fmt.Sprintf("no VM is called %q", ref), Hint: "`grange vm list` shows those that there are"}
	}
	return vms, nil
}

// completeFleetVMs offers names of VMs.
func (a vmCommands) completeFleetVMs(cmd *cobra.Command, args []string, typed string) ([]string,
	cobra.ShellCompDirective) {
	c, err := a.Fleet()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 3*time.Second)
	defer cancel()
	vms, _, err := c.VMs.List(ctx, fleet.VMFilter{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, v := range vms {
		if name := fullName(v); strings.HasPrefix(name, typed) && !slices.Contains(args, name) {
			names = append(names, name+"\t"+v.State+" "+v.Host)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// listFlags choose what is listed.
type listFlags struct {
	filter fleet.VMFilter
	tags   []string
}

func (f *listFlags) register(cmd *cobra.Command) {
	projectFlag(cmd, &f.filter.Project)
	cmd.Flags().StringVar(&f.filter.Host, "host", "", "list only VMs on this `HOST`")
	cmd.Flags().StringVar(&f.filter.Cell, "cell", "", "list only VMs in this `CELL`")
	cmd.Flags().StringVar(&f.filter.Owner, "owner", "", "list only VMs of this `USER`")
	cmd.Flags().StringVar(&f.filter.State, "state", "",
		"list only VMs in this `STATE`: placing, running, stopped, failed, unknown, ...")
	cmd.Flags().StringVar(&f.filter.Name, "name", "", "list only VMs whose name matches this `PATTERN`")
	cmd.Flags().StringSliceVar(&f.tags, "tag", nil, "list only VMs with this tag, `KEY[=VALUE]` (repeatable)")
}

func (a vmCommands) listFleetVMs(ctx context.Context, f listFlags) error {
	c, err := a.Fleet()
	if err != nil {
		return err
	}
	f.filter.Tags = map[string]string{}
	for _, tag := range f.tags {
		key, value, _ := strings.Cut(tag, "=")
		f.filter.Tags[key] = value
	}
	vms, _, err := c.VMs.List(ctx, f.filter)
	if err != nil {
		return err
	}
	return a.printFleetVMs(vms)
}

func (a vmCommands) printFleetVMs(vms []fleet.VM) error {
	return app.Table[fleet.VM]{None: "no virtual machines", Head: "NAME\tSTATE\tOWNER\tIMAGE\tCPUS\tMEMORY\tCELL\tHOST\tADDRESS\tAGE",
		Line: func(v fleet.VM) []any {
			return []any{fullName(v), stateOf(v), v.Owner, v.Image, v.Shape.CPUs, farm.Bytes(v.Shape.Memory),
				app.Dash(v.Cell), app.Dash(v.Host), app.Dash(v.Address), app.Age(v.Created)}
		}}.Print(a.App, vms)
}

// stateOf is a VM's state, marked where more was asked for.
func stateOf(v fleet.VM) string {
	if v.Pending && (v.State == "running" || v.State == "stopped") {
		return v.State + "*"
	}
	return v.State
}

func (a vmCommands) showFleetVM(ctx context.Context, ref, project string) error {
	_, v, err := a.fleetVM(ctx, ref, project)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(v)
	}
	t := output.NewColumns(a.Out)
	line := func(name, value string) {
		if value != "" {
			t.Row(name, value)
		}
	}
	line("name", fullName(v))
	line("id", v.ID)
	line("state", stateOf(v))
	line("reason", v.Reason)
	line("notice", v.Notice)
	line("wanted", v.Power)
	line("owner", v.Owner)
	line("image", v.Image)
	line("digest", v.Digest)
	line("shape", strings.TrimSpace(fmt.Sprintf("%s %d CPUs, %v of memory, %v of scratch", v.Shape.Name, v.Shape.CPUs,
		farm.Bytes(v.Shape.Memory), farm.Bytes(v.Shape.Scratch))))
	if v.Shape.Display {
		line("display", "in the VM's page")
	}
	line("cell", v.Cell)
	line("host", v.Host)
	line("job", v.Job)
	if v.Plan != nil {
		line("on CPUs", strings.Join(v.Plan.VCPUs, ","))
	}
	line("network", v.Network)
	line("address", v.Address)
	line("host name", v.Hostname)
	line("group", v.Group)
	line("security groups", strings.Join(v.SecurityGroups, " "))
	line("needs", strings.Join(v.Needs, ", "))
	line("tags", app.TagText(v.Tags))
	line("created", v.Created.Format(time.RFC3339))
	if v.Expires != nil {
		line("expires", v.Expires.Format(time.RFC3339))
	}
	if v.StopsAt != nil {
		line("stops at", v.StopsAt.Format(time.RFC3339))
	}
	return t.Flush()
}

// isStatus reports whether an error is a problem with this HTTP status.
func isStatus(err error, status int) bool {
	p := new(api.Problem)
	return errors.As(err, &p) && p.Status == status
}

func isGone(err error) bool { return isStatus(err, http.StatusNotFound) }
