package vm

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
)

// whyCommands are the commands that explain where a VM is, or why it is nowhere.
type whyCommands struct{ *app.App }

func (a whyCommands) whyCommand() *cobra.Command {
	f := &createFlags{}
	var each bool
	cmd := &cobra.Command{
		Use: "why [VM]", Short: "Explain, host by host, why a virtual machine cannot be placed",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: vmCommands(a).completeFleetVMs,
		Long: `Explain on which hosts of the fleet a virtual machine could be placed, and which constraint
excludes each of the others. The VM is an existing one, or one described by flags. Nothing
is created. The last lines list changes, each of which would be enough to place the VM.`,
		Example: "  grange why atlas/web-1\n  grange why -p atlas --shape large --need gpu",
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			if len(args) == 1 {
				v, err := findVM(ctx, c, args[0], f.request.Project)
				if err != nil {
					return err
				}
				why, err := c.VMs.Why(ctx, v.ID)
				if err != nil {
					return err
				}
				return a.printWhy(why, each)
			}
			if f.request.Project == "" {
				return app.Usage("grange why VM, or --project PROJECT and what it should be",
					"neither a VM nor a project is named")
			}
			if err := f.size(); err != nil {
				return err
			}
			f.request.Name = "why"
			why, err := c.Why(ctx, f.request)
			if err != nil {
				return err
			}
			return a.printWhy(why, each)
		}),
	}
	f.registerSize(cmd)
	cmd.Flags().BoolVar(&each, "each", false, "print the result for every host")
	vmCommands(a).completeCatalogue(cmd)
	return cmd
}

func (a whyCommands) printWhy(w fleet.Why, each bool) error {
	if a.JSON {
		return a.PrintJSON(w)
	}
	fmt.Fprintf(a.Out, "%d of %d hosts would take it\n", w.Fits, w.Hosts)
	t := output.NewColumns(a.Out)
	if len(w.Sums) > 0 {
		fmt.Fprintln(t, "\nHOSTS\tCONSTRAINT\tFOR EXAMPLE")
	}
	for _, s := range w.Sums {
		fmt.Fprintf(t, "%d\t%s\t%s\n", s.Hosts, s.Constraint, output.Visible(s.Example))
	}
	if each {
		fmt.Fprintln(t, "\nHOST\tCELL\tFITS\tWHY NOT")
		for _, h := range w.Each {
			fits := "no"
			if h.Fits {
				fits = "yes"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", h.Host, h.Cell, fits, app.Dash(output.Visible(h.Message)))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i, change := range w.Changes {
		if i == 0 {
			fmt.Fprint(a.Out, "\nany of these would admit it, the least first:\n")
		}
		fmt.Fprintf(a.Out, "  %s\n", output.Visible(change))
	}
	return nil
}
