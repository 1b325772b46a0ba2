package vm

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
)

// vmCommands are the commands of VMs.
type vmCommands struct{ *app.App }

func (a vmCommands) vmCommand() *cobra.Command {
	vm := &cobra.Command{Use: "vm", Short: "Manage virtual machines, of the fleet or of this host",
		Long: `Create, list and stop virtual machines. If a server is configured (--server, $GRANGE_SERVER,
client.toml, or its socket on this machine), the commands apply to VMs of the fleet.
Otherwise, and with --local or the agent's --socket, they apply to VMs of this host.`}
	var show string
	vm.AddCommand(
		a.vmCreate(),
		a.vmList(),
		a.oneVM("show VM", "Show a virtual machine: wanted or planned state, and current state", &show,
			func(cmd *cobra.Command, ref string) error {
				if !a.Here(cmd) {
					return a.showFleetVM(cmd.Context(), ref, show)
				}
				vm, err := a.Client().VM(cmd.Context(), ref)
				if err != nil {
					return err
				}
				return a.showVM(vm)
			}),
		a.vmStart(),
		a.vmStop(),
		a.vmRestart(),
		a.vmResize(),
		a.vmRebuild(),
		a.vmMove(),
		a.vmUpdate(),
		a.vmDelete(),
		a.consoleCommand(),
		a.vmConnect(),
	)
	return vm
}

func (a vmCommands) vmList() *cobra.Command {
	var f listFlags
	cmd := app.LocalFlag(&cobra.Command{Use: "list", Short: "List virtual machines, of the fleet or of this host",
		Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			if !a.Here(cmd) {
				return a.listFleetVMs(cmd.Context(), f)
			}
			vms, err := a.Client().VMs(cmd.Context())
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(vms)
			}
			return printVMs(a.Out, vms)
		}})
	f.register(cmd)
	return cmd
}

// vmStop stops VMs of the fleet, whose disks stay, or ends the one of this host, of which nothing stays.
func (a vmCommands) vmStop() *cobra.Command {
	cmd := a.manyVMs(verb{"stop", "Stop virtual machines; their disks and places stay", "is to stop",
		"the VMs have stopped", func(ctx context.Context, c *fleet.Client, v fleet.VM) (fleet.VM,
			error) {
			return c.VMs.Stop(ctx, v.ID)
		}, nil})
	fleets := cmd.RunE
	cmd.Short = "Stop VMs of the fleet, or end a VM of this host with its job"
	cmd.Long = cmd.Short + `.

A VM of the fleet is given as PROJECT/NAME, NAME, an ID, or a pattern such as 'web-*'.
It keeps its disks and its place. A VM of this host was created for a job; it is deleted.`
	cmd.ValidArgsFunction = a.completeVMs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !a.Here(cmd) {
			return fleets(cmd, args)
		}
		for _, ref := range args {
			vm, err := a.Client().Stop(cmd.Context(), ref)
			if err != nil {
				return err
			}
			if a.JSON {
				if err := a.PrintJSON(vm); err != nil {
					return err
				}
				continue
			}
			fmt.Fprintf(a.Out, "%s stopped\n", vm.Name)
		}
		return nil
	}
	return app.LocalFlag(cmd)
}

// oneVM is a command on one VM, with completion of its name.
func (a vmCommands) oneVM(use, short string, project *string, run func(*cobra.Command, string) error) *cobra.Command {
	cmd := app.LocalFlag(&cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeVMs,
		RunE:              func(cmd *cobra.Command, args []string) error { return run(cmd, args[0]) }})
	projectFlag(cmd, project)
	return cmd
}

func (a vmCommands) consoleCommand() *cobra.Command {
	var follow bool
	var project string
	cmd := a.oneVM("console VM", "Open or print the serial console of a "+
		"virtual machine", &project, func(cmd *cobra.Command, ref string) error {
		if !a.Here(cmd) {
			return a.fleetConsole(cmd.Context(), ref, project)
		}
		if !a.JSON {
			return a.Client().Console(cmd.Context(), ref, follow, output.RawOf(a.Out))
		}
		var text strings.Builder
		if err := a.Client().Console(cmd.Context(), ref, false, &text); err != nil {
			return err
		}
		return a.PrintJSON(map[string]string{"console": text.String()})
	})
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "for a VM of this host: print new output as it is written")
	return cmd
}

func (a vmCommands) completeVMs(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if !a.Here(cmd) {
		return a.completeFleetVMs(cmd, args, typed)
	}
	vms, err := a.Client().VMs(cmd.Context())
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, vm := range vms {
		names = append(names, vm.Name+"\t"+vm.User+" "+vm.Command)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func printVMs(w io.Writer, vms []api.VM) error {
	if len(vms) == 0 {
		_, err := fmt.Fprintln(w, "no virtual machines")
		return err
	}
	t := output.NewColumns(w)
	fmt.Fprintln(t, "NAME\tSTATE\tUSER\tCOMMAND\tIMAGE\tCPUS\tMEMORY\tON CPUS\tAGE\tBATCH JOB")
	for _, vm := range vms {
		t.Row(vm.Name, vm.State, vm.User, vm.Command, vm.Image, vm.CPUs,
			farm.Bytes(vm.Memory).Rounded(), strings.Join(vm.Plan.VCPUs, ","), app.Age(vm.Created), batchOf(vm))
	}
	return t.Flush()
}

// batchOf is the batch job that a VM belongs to, and how many of its tasks are in it; "-" outside of batch jobs.
func batchOf(vm api.VM) string {
	switch {
	case vm.Batch == "":
		return "-"
	case vm.Tasks == 1:
		return vm.Batch + ", 1 task"
	}
	return fmt.Sprintf("%s, %d tasks", vm.Batch, vm.Tasks)
}

func (a vmCommands) showVM(vm api.VM) error {
	if a.JSON {
		return a.PrintJSON(vm)
	}
	t := output.NewColumns(a.Out)
	p := vm.Plan
	fmt.Fprintf(t, "name\t%s\nid\t%s\njob\t%s\nstate\t%s\nuser\t%s "+
		"(%d)\ncommand\t%s\nimage\t%s\ndigest\t%s\ncreated\t%s\n", vm.Name, vm.ID, vm.Job, vm.State,
		output.OneLine(vm.User), vm.UID, output.OneLine(vm.Command), vm.Image, vm.Digest,
		vm.Created.Format(time.RFC3339))
	if c := vm.Cloud; c != nil {
		fmt.Fprintf(t, "of the server\t%s of project %s, wanted %s, ready %v\naddress\t%s %s\n", c.Name, c.Project,
			c.Wanted, c.Ready, c.Address, c.Hostname)
		if c.Reason != "" {
			t.Row("reason", c.Reason)
		}
	}
	if l := vm.Lease; l != nil {
		fmt.Fprintf(t, "network\t%s: %s\naddress\t%s %s\n", l.Network, l.Name, l.MAC, strings.Join(l.Addresses, " "))
	}
	if vm.Heard != nil {
		fmt.Fprintf(t, "guest\tanswered %v ago\n", app.Age(*vm.Heard))
	}
	if vm.Unresponsive != nil {
		fmt.Fprintf(t, "unresponsive\tsince %s\n", vm.Unresponsive.Format(time.RFC3339))
	}
	if vm.Watchdog != nil {
		fmt.Fprintf(t, "watchdog\tran out at %s\n", vm.Watchdog.Format(time.RFC3339))
	}
	if vm.Flooding != nil {
		fmt.Fprintf(t, "floods\tits control port since %s; it had to wait %d times\n", vm.Flooding.Format(time.RFC3339),
			vm.FloodWaits)
	}
	if vm.Batch != "" {
		fmt.Fprintf(t, "batch job\t%s\n", batchOf(vm))
	}
	fmt.Fprintf(t, "cpus\t%d: %d sockets × %d cores × %d threads\nmemory\t%v\nscratch\t%v\n", vm.CPUs, p.Sockets,
		p.Cores, p.Threads, farm.Bytes(vm.Memory).Rounded(), farm.Bytes(vm.Scratch).Rounded())
	for _, b := range []struct {
		what string
		rate uint64
	}{{"receives", vm.BandwidthIn}, {"sends", vm.BandwidthOut}} {
		if b.rate > 0 {
			t.Row(b.what, fmt.Sprintf("%vbit/s at most", farm.Rate(b.rate)))
		}
	}
	for i, pin := range p.VCPUs {
		fmt.Fprintf(t, "vCPU %d\ton CPU %s\n", i, pin)
	}
	fmt.Fprintf(t, "emulator\ton CPUs %s\n", p.Emulator)
	for i, c := range p.Cells {
		pages := "ordinary pages"
		if c.PageSize > 0 {
			pages = fmt.Sprintf("pages of %v", farm.Bytes(c.PageSize))
		}
		remote := ""
		if c.Remote {
			remote = "; the memory is remote: the node of its CPUs has none"
		}
		fmt.Fprintf(t, "cell %d\tvCPUs %s, %v on node %d, %s%s\n", i, c.VCPUs, farm.Bytes(c.Memory).Rounded(),
			c.Node, pages, remote)
	}
	if p.Floating != "" {
		fmt.Fprintf(t, "floating\tvCPUs %s share their CPUs with other VMs\n", p.Floating)
	}
	if p.Extra != "" {
		fmt.Fprintf(t, "held\tCPUs %s beside those of the vCPUs\n", p.Extra)
	}
	showGuest(t, vm.Guest)
	x := vm.Applied
	fmt.Fprintf(t, "accelerator\t%s, CPU model %s\n", x.Accelerator, strings.TrimSpace(x.CPUMode+" "+x.CPUModel))
	if x.Cache != "" {
		fmt.Fprintf(t, "disks\tcache %s, I/O by %s\n", x.Cache, x.IO)
	}
	if x.QEMUUID != 0 {
		fmt.Fprintf(t, "QEMU\truns as user %d, as no other VM's does\n", x.QEMUUID)
	}
	for _, b := range vm.Binds {
		t.Row("bind", fmt.Sprintf("%s by %s: %s", b.Target, b.Gateway, b.Why))
		if f := b.FileSystem; f != nil {
			t.Row("", fmt.Sprintf("from %s, a file system of type %s at %s", f.Source, f.Type, f.MountPoint))
		}
	}
	for _, s := range vm.Services {
		t.Row("service", s)
	}
	if x.Confinement != "" {
		fmt.Fprintf(t, "confined by\t%s\n", x.Confinement)
	}
	if x.Purpose != "" {
		fmt.Fprintf(t, "tuned for\t%s\n", x.Purpose)
	}
	for _, w := range x.Warnings {
		fmt.Fprintf(t, "not applied\t%s\n", w)
	}
	return t.Flush()
}

// showGuest writes what the guest sees of its machine.
func showGuest(t io.Writer, g *api.GuestView) {
	if g == nil {
		return
	}
	sees := fmt.Sprintf("%d NUMA nodes", len(g.Nodes))
	if g.Sockets > 0 {
		sees = fmt.Sprintf("%d sockets × %d cores × %d threads, %s", g.Sockets, g.Cores, g.Threads, sees)
	}
	if g.Clock != "" {
		sees += ", clock " + g.Clock
	}
	fmt.Fprintf(t, "guest sees\t%s\n", sees)
	for _, text := range g.Differs {
		fmt.Fprintf(t, "not as planned\t%s\n", text)
	}
}
