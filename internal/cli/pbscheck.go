package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/batch/pbs"
	"github.com/grange-project/grange/internal/batch/program"
)

func (a *app) pbsCheck() *cobra.Command {
	conf := "/etc/pbs.conf"
	if env := os.Getenv("PBS_CONF_FILE"); env != "" {
		conf = env
	}
	cmd := &cobra.Command{
		Use: "check", Short: "Say what in OpenPBS keeps jobs in VMs from working as on the host",
		Long: `On the server's host: ask the server for its hooks and queues, and look at the scheduler's configuration. On a host where jobs run: look at what the
mom has got of the hook, at the wrapper, and at the mom's own configuration. Says what is wrong, why it matters, and what to do. Nothing is changed.
It is root's to run: PBS shows hooks to nobody else. Exit status 1: something is broken, so that no job starts, or one could run outside of a VM.`,
		Example: "  grange pbs check\n  grange pbs check --json",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			site, err := pbs.ReadSite(cmd.Context(), os.DirFS("/"), program.Start, conf)
			if err != nil {
				return err
			}
			return a.tellFindings(pbs.Check(site))
		},
	}
	cmd.Flags().StringVar(&conf, "conf", conf, "`FILE` that says where PBS is")
	cmd.MarkFlagFilename("conf")
	return cmd
}
