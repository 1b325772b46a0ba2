package cli

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/batch/program"
	"github.com/grange-project/grange/internal/batch/slurm"
)

// slurmHook is what slurmd runs as root, before and after each job on a host.
func (a *app) slurmHook(name, short string, run func(slurm.Hooks, context.Context) error) *cobra.Command {
	h := slurm.Hooks{Getenv: os.Getenv, Environ: os.Environ(), Run: program.Start}
	cmd := &cobra.Command{Use: name, Short: short, Args: cobra.NoArgs, Long: short + `.

slurmd runs it as root, from Prolog and Epilog in slurm.conf. It reads what slurmd tells it in its environment.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(h, cmd.Context()) }}
	cmd.Flags().StringVar(&h.Attest, "attest", slurm.Attest, "`DIR` where the plug-in leaves word; as attest= in plugstack.conf")
	cmd.Flags().Uint32Var(&h.MinUID, "min-uid", 1000, "users below run on the host without the plug-in; as min_uid= in plugstack.conf")
	return cmd
}
