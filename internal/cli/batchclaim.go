package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

func (a *app) batchClaimCommand() *cobra.Command {
	var c api.Claim
	var memory string
	cmd := &cobra.Command{
		Use: "claim --key SYSTEM/JOB [flags]", Short: "In a prolog: set a part of this host aside for a job on the host",
		Args: cobra.NoArgs,
		Long: `Tells the agent, as root, what a job on the host has been given, so that no VM gets the same. The claim ends with "grange batch release", or with the
process or the control group that it names. What VMs hold already is printed: the batch system has decided, and the claim counts all the same.`,
		Example: "  grange batch claim --key gridengine/17 --cpus 0-3 --memory 8G --process $PPID",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if memory != "" {
				b, err := farm.ParseBytes(memory)
				if err != nil {
					return err
				}
				c.Memory = uint64(b)
			}
			made, err := a.client().Claim(cmd.Context(), c)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(made)
			}
			for _, text := range made.Conflicts {
				fmt.Fprintf(a.out, "note: %s\n", text)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&c.Key, "key", "", "batch system and its job, as `slurm/1234`")
	flags.StringVar(&c.CPUs, "cpus", "", "host threads, as `0-3,8`")
	flags.IntVar(&c.Count, "count", 0, "or how many of them")
	flags.StringVar(&memory, "memory", "", "memory, as 8G")
	flags.IntVar(&c.Process, "process", 0, "the claim ends with this process")
	flags.StringVar(&c.Cgroup, "cgroup", "", "the claim ends with this `GROUP` below /sys/fs/cgroup")
	cmd.MarkFlagRequired("key")
	return cmd
}

func (a *app) batchReleaseCommand() *cobra.Command {
	return &cobra.Command{
		Use: "release KEY", Short: "In an epilog: end the claim of a job on the host",
		Example: "  grange batch release gridengine/17",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("grange batch release SYSTEM/JOB", "one claim at a time")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command,
			args []string) error {
			return a.client().Release(cmd.Context(), args[0])
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}
