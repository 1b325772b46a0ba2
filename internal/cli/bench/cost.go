package bench

import (
	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/bench"
	"github.com/grange-project/grange/internal/cli/app"
)

func (a benchCommands) costCommand() *cobra.Command {
	var file string
	var p bench.Price
	cmd := &cobra.Command{Use: "cost", Short: "Say what the work of the last measurement costs", Args: cobra.NoArgs,
		Long: `Say, for each workload and size of the last measurement of "grange bench run", what a unit of its
score costs in a year: the purchase of the host by the years that it is used, and its energy. The
power is what the host's own meter showed while the VMs worked (a power meter by ACPI, or RAPL of
its processors and memory), or --watts. Money is in the currency in which --price is.`,
		Example: "  grange bench cost --price 9500 --years 6 --kwh 0.28\n  grange bench cost --price 9500 --kwh 0.28 --watts 640",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !(p.Host > 0 && p.Years > 0 && p.KWh >= 0 && p.Watts >= 0) {
				return app.Usage("give the price of the host: --price 9500", "a price, and years, of more than 0")
			}
			_, all, err := measured(file, cmd)
			if err != nil {
				return err
			}
			last := all[len(all)-1]
			costs := bench.Costs(last, p)
			meter := last.Host.Power
			if p.Watts > 0 {
				meter = "as given"
			}
			if a.JSON {
				return a.PrintJSON(costs)
			}
			_, err = a.Out.Write([]byte(bench.CostTable(costs, meter)))
			return err
		}}
	flags := cmd.Flags()
	flags.Float64Var(&p.Host, "price", 0, "price of the host")
	flags.Float64Var(&p.Years, "years", 5, "years for which it is used")
	flags.Float64Var(&p.KWh, "kwh", 0, "price of a kilowatt-hour, with its share of cooling")
	flags.Float64Var(&p.Watts, "watts", 0, "power of the host under load (default: as measured)")
	flags.StringVar(&file, "config", app.DefaultConfig, "the agent's configuration `FILE`")
	return cmd
}
