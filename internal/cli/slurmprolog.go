package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/batch/program"
	"github.com/grange-project/grange/internal/batch/slurm"
)

// slurmProlog is what slurmd runs as root before each job, where the shell alone can not tell.
func (a *app) slurmProlog() *cobra.Command {
	p := slurm.Prolog{PID: os.Getpid(), Getenv: os.Getenv, Environ: os.Environ(), Run: program.Start}
	cmd := &cobra.Command{Use: "prolog", Short: "Refuse a job for which Slurm does not load grange's plug-in", Args: cobra.NoArgs,
		Long: `Refuse a job for which Slurm does not load grange's plug-in.

slurmd runs it as root, by Prolog in slurm.conf, and it reads what slurmd tells it in its environment. The slurmd that starts it must have loaded
the plug-in. Where its configuration has changed since, that must still name the plug-in as required.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.Check(cmd.Context()) }}
	cmd.Flags().StringVar(&p.Attest, "attest", slurm.Attest, "`DIR` where the plug-in leaves word; as attest= in plugstack.conf")
	cmd.Flags().Uint32Var(&p.MinUID, "min-uid", 1000, "users below run on the host without the plug-in; as min_uid= in plugstack.conf")
	cmd.Flags().StringVar(&p.Conf, "conf", "/etc/slurm/slurm.conf", "slurm.conf as slurmd reads it; the others lie beside it")
	cmd.MarkFlagDirname("attest")
	cmd.MarkFlagFilename("conf")
	return cmd
}
