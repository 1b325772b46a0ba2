package fleet

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
)

// catalogueCommands are the commands of what VMs are made of.
type catalogueCommands struct{ *app.App }

func (a catalogueCommands) shapeCommand() *cobra.Command {
	shape := &cobra.Command{Use: "shape", Short: "List the shapes of VMs in the fleet",
		Long: "A shape is a named size and tuning for VMs of the fleet. Shapes are created with\n" +
			"`grange apply`."}
	t := app.Table[fleet.Shape]{None: "no shapes; `grange apply` makes them",
		Head: "SHAPE\tCPUS\tMEMORY\tSCRATCH\tPAGES\tNUMA\tPURPOSE\tCPU MODEL\tIN\tOUT",
		Line: func(s fleet.Shape) []any {
			return []any{s.Name, s.CPUs, farm.Bytes(s.Memory), farm.Bytes(s.Scratch), app.Dash(s.Pages),
				app.Dash(s.NUMA), app.Dash(s.Purpose), app.Dash(s.CPUModel), rate(s.BandwidthIn), rate(s.BandwidthOut)}
		}}
	shape.AddCommand(t.Command(a.App, "List the shapes",
		func(ctx context.Context, c *fleet.Client) ([]fleet.Shape, error) { return c.Shapes(ctx) }))
	return shape
}

// rate is a bandwidth in a table.
func rate(bits uint64) string {
	if bits == 0 {
		return "-"
	}
	return farm.Rate(bits).String() + "bit/s"
}
