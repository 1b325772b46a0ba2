package host

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
)

func (a hostCommands) hostSlow() *cobra.Command {
	var cell, since string
	cmd := &cobra.Command{Use: "slow", Args: cobra.NoArgs, Short: "List hosts that are slower than others of their kind",
		Long: `List hosts on which guests boot more slowly than on others of the same type of hardware, slowest
first. Booting is work that all hosts do alike, many times a day: compared is the same image with
as many CPUs, by the records of jobs and workers. A host is listed when it takes at least 5 %
longer, and chance alone would list any host in less than 1 of 20 lists.

'grange tune audit' and 'grange tune why-slow' on the host say more.`,
		Example: "  grange host slow --since 30d",
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, _ []string) error {
			at, err := app.ParseAgo("since", since, time.Now())
			if err != nil {
				return err
			}
			slow, err := c.Hosts.Slow(ctx, cell, *at)
			if err != nil {
				return err
			}
			return a.printSlow(slow)
		})}
	cmd.Flags().StringVar(&cell, "cell", "", "compare only hosts of this `CELL`")
	cmd.Flags().StringVar(&since, "since", "7d", "take what ended since this `TIME`: 7d, or 2027-01-31T18:00:00Z")
	return cmd
}

func (a hostCommands) printSlow(s fleet.SlowHosts) error {
	if a.JSON {
		return a.PrintJSON(s)
	}
	if len(s.Items) > 0 {
		table := app.Table[fleet.SlowHost]{Head: "HOST\tKIND\tIMAGE\tCPUS\tSTARTS\tBOOT\tPEERS\tTHEIR BOOT\tLONGER\tCHANCE",
			Line: func(h fleet.SlowHost) []any {
				return []any{h.Host, h.Kind, h.Image, h.CPUs, h.Starts, fmt.Sprintf("%.2f s", h.Boot), h.PeerHosts,
					fmt.Sprintf("%.2f s", h.PeerBoot), fmt.Sprintf("%.0f %%", 100*(h.Ratio-1)), fmt.Sprintf("%.1g", h.P)}
			}}
		if err := table.Print(a.App, s.Items); err != nil {
			return err
		}
	}
	cut := ""
	if s.Cut {
		cut = ": the newest, there were more"
	}
	_, err := fmt.Fprintf(a.Out, "%d of %s slower than their peers, by %s since %s%s\n", len(s.Items),
		farm.Count(s.Compared, "host"), farm.Count(s.Starts, "start"), s.Since.Local().Format(time.DateTime), cut)
	return err
}
