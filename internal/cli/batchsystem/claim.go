package batchsystem

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
)

func (a batchCommands) batchClaimCommand() *cobra.Command {
	var c api.Claim
	var memory string
	cmd := &cobra.Command{
		Use: "claim --key SYSTEM/JOB [flags]", Short: "Reserve CPUs and memory for a job on the host (for prologs)",
		Args: cobra.NoArgs,
		Long: `Reserve the CPUs and memory of a job that runs directly on the host, so that the agent does
not give them to a VM. The command is for prologs and must run as root. The claim ends with
"grange batch release", or with the process or control group given here.

If VMs already hold some of these resources, the command prints which. The claim is made
regardless, because the batch system has already allocated the resources.`,
		Example: "  grange batch claim --key gridengine/17 --cpus 0-3 --memory 8G --process $PPID",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if memory != "" {
				b, err := farm.ParseBytes(memory)
				if err != nil {
					return err
				}
				c.Memory = uint64(b)
			}
			made, err := a.Client().Claim(cmd.Context(), c)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(made)
			}
			for _, text := range made.Conflicts {
				fmt.Fprintf(a.Out, "note: %s\n", text)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&c.Key, "key", "", "batch system and job ID, for example `slurm/1234`")
	flags.StringVar(&c.CPUs, "cpus", "", "host CPUs (hardware threads), for example `0-3,8`")
	flags.IntVar(&c.Count, "count", 0, "number of host CPUs, instead of --cpus")
	flags.StringVar(&memory, "memory", "", "`SIZE` of the job's memory, for example 8G")
	flags.IntVar(&c.Process, "process", 0, "end the claim when the process `PID` ends")
	flags.StringVar(&c.Cgroup, "cgroup", "", "end the claim when the control group `GROUP` below /sys/fs/cgroup ends")
	cmd.MarkFlagRequired("key")
	return cmd
}

func (a batchCommands) batchReleaseCommand() *cobra.Command {
	return &cobra.Command{
		Use: "release KEY", Short: "End the claim of a job on the host (for epilogs)",
		Example: "  grange batch release gridengine/17",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return app.Usage("grange batch release SYSTEM/JOB", "one claim at a time")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command,
			args []string) error {
			return a.Client().Release(cmd.Context(), args[0])
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}
