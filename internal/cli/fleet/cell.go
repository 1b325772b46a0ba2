package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
)

// cellCommands are the commands of cells.
type cellCommands struct{ *app.App }

func (a cellCommands) cellCommand() *cobra.Command {
	cell := &cobra.Command{Use: "cell", Short: "Show, open, close and drain cells",
		Long: "A cell is a group of hosts with one broker. Cells are created with `grange apply`; these\n" +
			"commands list, show, open, close and drain them."}
	cell.AddCommand(a.cellList(), a.cellShow(), a.cellOpen(), a.cellClose(), a.cellDrain(),
		farmCommands(a).cellImport())
	return cell
}

func (a cellCommands) cellList() *cobra.Command {
	t := app.Table[fleet.Cell]{None: "no cells; `grange apply` makes them", Head: "CELL\tNEW VMS\tFOR\tBROKER\tHOSTS\tVMS\tWHY",
		Line: func(v fleet.Cell) []any {
			return []any{v.Name, app.CellState(v), cellFor(v), v.Broker, v.Hosts, v.VMs, farm.Printable(cellReason(v))}
		}}
	return t.Command(a.App, "List the cells", func(ctx context.Context, c *fleet.Client) ([]fleet.Cell, error) {
		cells, _, err := c.Cells.List(ctx)
		return cells, err
	})
}

func cellReason(v fleet.Cell) string {
	if v.Drain != nil {
		return v.Drain.Reason
	}
	return v.Reason
}

// cellFor is whose new VMs a cell takes.
func cellFor(v fleet.Cell) string {
	const most = 4
	names := slices.Clone(v.Projects)
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("+%d", len(v.Projects)-most))
	}
	if v.Default {
		names = append([]string{"(default)"}, names...)
	}
	if len(names) == 0 {
		return "nobody"
	}
	return strings.Join(names, " ")
}

// oneCell is a command on one cell, with completion of its name.
func (a cellCommands) oneCell(use, short string,
	run func(context.Context, *fleet.Client, string) (fleet.Cell, error)) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeCells,
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			v, err := run(ctx, c, args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(v)
			}
			return a.showCell(v)
		})}
}

func (a cellCommands) cellShow() *cobra.Command {
	return a.oneCell("show CELL", "Show a cell", func(ctx context.Context, c *fleet.Client, name string) (fleet.Cell,
		error) {
		return c.Cells.Get(ctx, name)
	})
}

func (a cellCommands) cellOpen() *cobra.Command {
	return a.oneCell("open CELL", "Open a cell to new VMs, and end its drain",
		func(ctx context.Context, c *fleet.Client, name string) (fleet.Cell, error) {
			return c.Cells.Open(ctx, name)
		})
}

func (a cellCommands) cellClose() *cobra.Command {
	var reason string
	cmd := a.oneCell("close CELL", "Close a cell to new VMs; existing VMs stay",
		func(ctx context.Context, c *fleet.Client, name string) (fleet.Cell, error) {
			return c.Cells.Close(ctx, name, reason)
		})
	cmd.Long = `Close a cell to new VMs. Existing VMs continue to run, and can be stopped, started,
restarted, resized, rebuilt and deleted. A project that has no other cell gets no new VMs;
it does not fall back to the default cells.`
	cmd.Flags().StringVarP(&reason, "reason", "r", "", "reason, shown to users who find the cell closed: `TEXT`")
	return cmd
}

func (a cellCommands) cellDrain() *cobra.Command {
	var reason, deadline string
	cmd := a.oneCell("drain CELL", "Drain a cell: no new VMs, and existing VMs end",
		func(ctx context.Context, c *fleet.Client, name string) (fleet.Cell, error) {
			at, err := app.ParseExpiry(deadline, time.Now())
			if err != nil {
				return fleet.Cell{}, err
			}
			return c.Cells.Drain(ctx, name, fleet.DrainRequest{Deadline: at, Reason: reason})
		})
	cmd.Long = "Drain a cell. The cell takes no new VMs. Owners of existing VMs see the drain and its\n" +
		"deadline; VMs that still run at the deadline are stopped. `grange cell open` ends the drain."
	cmd.Flags().StringVarP(&reason, "reason", "r", "", "reason, shown to owners of VMs in the cell: `TEXT`")
	cmd.Flags().StringVarP(&deadline, "deadline", "d", "",
		"`TIME` at which running VMs are stopped: 12h, 3d or 2027-01-31T18:00:00Z (default: never)")
	return cmd
}

func (a cellCommands) completeCells(cmd *cobra.Command, args []string, typed string) ([]string,
	cobra.ShellCompDirective) {
	return a.CompleteNames(cmd, args, typed, func(ctx context.Context, c *fleet.Client) (names []string, err error) {
		cells, _, err := c.Cells.List(ctx)
		for _, v := range cells {
			names = append(names, v.Name)
		}
		return names, err
	})
}

func (a cellCommands) showCell(v fleet.Cell) error {
	t := output.NewColumns(a.Out)
	row := func(key, value string) {
		if value != "" && value != "0" {
			fmt.Fprintf(t, "%s\t%s\n", key, farm.Printable(value))
		}
	}
	row("cell", v.Name)
	row("new VMs", app.CellState(v))
	row("why", cellReason(v))
	if d := v.Drain; d != nil {
		row("draining since", d.Since.Format(time.RFC3339)+" by "+d.By)
		if d.Deadline != nil {
			row("stops what is left at", d.Deadline.Format(time.RFC3339))
		}
		row("VMs left", fmt.Sprint(d.VMs))
	}
	if v.Default {
		row("for", "projects without cells of their own")
	}
	row("projects", strings.Join(v.Projects, " "))
	row("broker", strings.TrimSpace(v.Broker+" "+v.Batch))
	row("packing", v.Packing)
	row("hosts kept whole", fmt.Sprint(v.KeepWhole))
	row("memory overcommit", fmt.Sprint(v.Overcommit))
	row("VMs on one host", fmt.Sprint(v.PerHost))
	row("limits", quotaText(v.Limits))
	if v.Services {
		row("services", "yes: fit to be migrated")
	}
	row("labels", labelsText(v.Labels))
	fmt.Fprintf(t, "hosts\t%d\nVMs\t%d\n", v.Hosts, v.VMs)
	return t.Flush()
}

// quotaText is a quota for people; "": it bounds nothing.
func quotaText(q fleet.Quota) string {
	var parts []string
	for _, p := range []struct {
		n    int
		noun string
	}{{q.VMs, "VM"}, {q.CPUs, "CPU"}} {
		if p.n > 0 {
			parts = append(parts, farm.Count(p.n, p.noun))
		}
	}
	if q.Memory > 0 {
		parts = append(parts, farm.Bytes(q.Memory).String()+" of memory")
	}
	if q.Scratch > 0 {
		parts = append(parts, farm.Bytes(q.Scratch).String()+" of scratch")
	}
	return strings.Join(parts, ", ")
}

func labelsText(labels map[string]string) string {
	var words []string
	for k, v := range labels {
		words = append(words, strings.TrimSuffix(k+"="+v, "="))
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}
