package batchsystem

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/batch/slurm/setup"
	"github.com/grange-project/grange/internal/program"
)

// slurmProlog is what slurmd runs as root before each job, where the shell alone can not tell.
func (a slurmCommands) slurmProlog() *cobra.Command {
	p := setup.Prolog{Slurmd: os.Getppid(), Getenv: os.Getenv, Environ: os.Environ(), Run: program.Start}
	cmd := &cobra.Command{Use: "prolog", Short: "Refuse a job for which Slurm does not load the plug-in",
		Args: cobra.NoArgs,
		Long: `Refuse a job for which Slurm does not load grange's plug-in.

slurmd runs the command as root, through Prolog in slurm.conf. The command reads the
environment that slurmd sets. plugstack.conf must name the plug-in as required, and the
plug-in's file must exist: then Slurm ends a job whose daemon cannot load it. The result is
recorded, and the calling script runs the command again only when one of these files has
changed.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.Check(cmd.Context()) }}
	cmd.Flags().StringVar(&p.Checked, "checked", setup.Checked, "`DIR` for the recorded result")
	cmd.Flags().Uint32Var(&p.MinUID, "min-uid", 1000,
		"lowest user ID that the plug-in applies to, as min_uid= in plugstack.conf; jobs of others run on the host")
	cmd.Flags().StringVar(&p.Conf, "conf", "/etc/slurm/slurm.conf",
		"slurm.conf, a `FILE` in the directory of the others (default if slurmd sets none)")
	cmd.MarkFlagDirname("checked")
	cmd.MarkFlagFilename("conf")
	return cmd
}
