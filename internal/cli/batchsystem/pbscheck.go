package batchsystem

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/batch/pbs/setup"
	"github.com/grange-project/grange/internal/program"
)

func (a pbsCommands) pbsCheck() *cobra.Command {
	conf := "/etc/pbs.conf"
	if env := os.Getenv("PBS_CONF_FILE"); env != "" {
		conf = env
	}
	cmd := &cobra.Command{
		Use: "check", Short: "Check OpenPBS for jobs in virtual machines",
		Long: `Check OpenPBS for jobs in virtual machines. On the server's host, the command queries the
server for its hooks and queues, and reads the scheduler's configuration. On a host that
runs jobs, it checks the mom's copy of the hook, the wrapper, and the mom's configuration.
It reports each problem with its consequence and its remedy, and changes nothing. Run it as
root: PBS shows hooks to root only.

Exit status 1: there is an error because of which jobs do not start, or could run outside of
a VM.`,
		Example: "  grange pbs check\n  grange pbs check --json",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			site, err := setup.ReadSite(cmd.Context(), os.DirFS("/"), program.Start, conf)
			if err != nil {
				return err
			}
			return tellFindings(a.App, setup.Check(site))
		},
	}
	cmd.Flags().StringVar(&conf, "conf", conf, "`FILE` that names the directories of PBS")
	cmd.MarkFlagFilename("conf")
	return cmd
}
