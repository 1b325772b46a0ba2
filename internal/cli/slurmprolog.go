package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/batch/program"
	"github.com/grange-project/grange/internal/batch/slurm"
)

// slurmProlog is what slurmd runs as root before each job, where the shell alone can not tell.
func (a *app) slurmProlog() *cobra.Command {
	p := slurm.Prolog{Slurmd: os.Getppid(), Getenv: os.Getenv, Environ: os.Environ(), Run: program.Start}
	cmd := &cobra.Command{Use: "prolog", Short: "Refuse a job for which Slurm does not load grange's plug-in",
		Args: cobra.NoArgs,
		Long: `Refuse a job for which Slurm does not load grange's plug-in.

slurmd runs it as root, by Prolog in slurm.conf, and it reads what slurmd tells it in its environment. plugstack.conf has to name the plug-in as
required, and its file has to be there: then Slurm ends a job whose daemon can not load it. What grange has found is noted, and the script that
calls it does so again only when one of these files has changed.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.Check(cmd.Context()) }}
	cmd.Flags().StringVar(&p.Checked, "checked", slurm.Checked, "`DIR` for the note")
	cmd.Flags().Uint32Var(&p.MinUID, "min-uid", 1000,
		"users below run on the host without the plug-in; as min_uid= in plugstack.conf")
	cmd.Flags().StringVar(&p.Conf, "conf", "/etc/slurm/slurm.conf",
		"slurm.conf, where slurmd does not say; the others lie beside it")
	cmd.MarkFlagDirname("checked")
	cmd.MarkFlagFilename("conf")
	return cmd
}
