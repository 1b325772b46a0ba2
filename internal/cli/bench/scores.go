package bench

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/bench"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/farmfile"
)

func (a benchCommands) scoresCommand() *cobra.Command {
	var file, unit string
	var anyTuning bool
	cmd := &cobra.Command{Use: "scores WORKLOAD", Short: "Make scores of the last measurement, for the farm file",
		Args: cobra.ExactArgs(1),
		Long: `Print, for the farm file, what a core does in VMs of each size that the last measurement of "grange bench run"
has for a workload. The fleet's accounts are normalised by these scores: for VMs of that size on hosts of this
hardware that are tuned as this one was. --any-tuning makes them hold however such hosts are tuned.`,
		Example: "  grange bench run --program db12='python3 /srv/db12.py' --size 4x8,1x32\n" +
			"  grange bench scores db12 --unit DB12 >>farm.toml && grange apply -f farm.toml",
		RunE: func(cmd *cobra.Command, args []string) error {
			_, all, err := measured(file, cmd)
			if err != nil {
				return err
			}
			host, err := os.Hostname()
			if err != nil {
				return err
			}
			last := all[len(all)-1]
			if anyTuning {
				last.Host.Tuning = ""
			}
			scores, err := bench.Scores(last, args[0], unit, host)
			if err != nil {
				return err
			}
			if last.Host.Emulated || last.Host.Virtual {
				fmt.Fprintln(a.Err, "this host is no real one, or its VMs ran without KVM: these scores say nothing of real ones")
			}
			if a.JSON {
				return a.PrintJSON(scores)
			}
			text, err := farmfile.Format(farm.Farm{Scores: scores})
			if err == nil {
				_, err = a.Out.Write(text)
			}
			return err
		}}
	cmd.Flags().StringVar(&unit, "unit", "", "`NAME` of what was measured, as HEPscore23 (default: the workload's own)")
	cmd.Flags().BoolVar(&anyTuning, "any-tuning", false, "scores that hold however the host is tuned")
	cmd.Flags().StringVar(&file, "config", app.DefaultConfig, "the agent's configuration `FILE`")
	return cmd
}
