package cli

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/batch/lsf"
)

func (a *app) lsfCheck() *cobra.Command {
	conf, root := "/etc/lsf.conf", "/"
	if dir := os.Getenv("LSF_ENVDIR"); dir != "" {
		conf = filepath.Join(dir, "lsf.conf")
	}
	cmd := &cobra.Command{
		Use: "check", Short: "Say what in LSF's configuration keeps jobs in VMs from working as on the host",
		Long: `Read lsf.conf and what it leads to (lsb.queues, lsb.params, lsf.shared, lsf.cluster), look at esub, elim and the wrapper, and say what is wrong, why
it matters, and what to do. Nothing is changed, and LSF is not asked. Exit status 1: something is broken, so that no job starts, or one could run
outside of a VM.`,
		Example: "  grange lsf check --conf /opt/lsf/conf/lsf.conf",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			site, err := lsf.ReadSite(os.DirFS(root), conf)
			if err != nil {
				return err
			}
			return a.tellFindings(lsf.Check(site))
		},
	}
	cmd.Flags().StringVar(&conf, "conf", conf, "`FILE` to check; it says where the others are")
	cmd.Flags().StringVar(&root, "root", root, "look at the host in this `DIR`, live or recorded")
	cmd.MarkFlagFilename("conf")
	cmd.MarkFlagDirname("root")
	return cmd
}
