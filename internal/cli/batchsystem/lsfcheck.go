package batchsystem

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/batch/lsf/setup"
)

func (a lsfCommands) lsfCheck() *cobra.Command {
	conf, root := "/etc/lsf.conf", "/"
	if dir := os.Getenv("LSF_ENVDIR"); dir != "" {
		conf = filepath.Join(dir, "lsf.conf")
	}
	cmd := &cobra.Command{
		Use: "check", Short: "Check LSF's configuration for jobs in virtual machines",
		Long: `Read lsf.conf and the files that it refers to (lsb.queues, lsb.params, lsf.shared,
lsf.cluster), check esub, elim and the wrapper, and report each problem with its consequence
and its remedy. The command changes nothing, and does not query LSF.

Exit status 1: there is an error because of which jobs do not start, or could run outside of
a VM.`,
		Example: "  grange lsf check --conf /opt/lsf/conf/lsf.conf",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			site, err := setup.ReadSite(os.DirFS(root), conf)
			if err != nil {
				return err
			}
			return tellFindings(a.App, setup.Check(site))
		},
	}
	cmd.Flags().StringVar(&conf, "conf", conf, "lsf.conf to check, a `FILE` that names the other files")
	cmd.Flags().StringVar(&root, "root", root, "read the host's files below this `DIR`: / or a recorded host")
	cmd.MarkFlagFilename("conf")
	cmd.MarkFlagDirname("root")
	return cmd
}
