package host

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
)

// hostVerb is a command on any number of hosts, which the server does all at once.
func (a hostCommands) hostVerb(name, short, long string,
	do func(context.Context, *fleet.Client, []string) ([]fleet.Host, error)) *cobra.Command {
	return &cobra.Command{Use: name + " HOST...", Short: short, Long: long + "\n\n" + whichHosts,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.CompleteHosts,
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			hosts, err := do(ctx, c, args)
			if err != nil {
				return err
			}
			return a.printHosts(hosts)
		})}
}

func (a hostCommands) hostOpen() *cobra.Command {
	return a.hostVerb("open", "Open hosts to new VMs, and end their drains",
		`Open hosts to new VMs, end their drains, and open them in their batch system if they have
one.`,
		func(ctx context.Context, c *fleet.Client, hosts []string) ([]fleet.Host, error) {
			return c.Hosts.Open(ctx, hosts)
		})
}

func (a hostCommands) hostClose() *cobra.Command {
	var reason string
	cmd := a.hostVerb("close", "Close hosts to new VMs",
		`Close hosts to new VMs, and to jobs of their batch system if they have one. VMs and jobs on
the hosts continue to run.`,
		func(ctx context.Context, c *fleet.Client, hosts []string) ([]fleet.Host, error) {
			return c.Hosts.Close(ctx, hosts, reason)
		})
	reasonFlag(cmd, &reason)
	return cmd
}

func (a hostCommands) hostDrain() *cobra.Command {
	var reason, deadline string
	cmd := a.hostVerb("drain", "Drain hosts: no new VMs, and existing VMs end",
		"Close hosts and notify the owners of their VMs. VMs that still run at the deadline are\n"+
			"stopped; without a deadline, VMs run until they end. `grange host list` shows what is left.",
		func(ctx context.Context, c *fleet.Client, hosts []string) ([]fleet.Host, error) {
			r, err := drainRequest(deadline, reason, time.Now())
			if err != nil {
				return nil, err
			}
			return c.Hosts.Drain(ctx, hosts, r)
		})
	cmd.Example = "  grange host drain wn-17 --deadline 24h --reason 'new memory'\n  grange host drain 'cell:main'"
	cmd.Flags().StringVar(&deadline, "deadline", "",
		"`TIME` at which running VMs are stopped, or a duration such as 24h")
	reasonFlag(cmd, &reason)
	return cmd
}

// drainRequest reads the flags of a drain.
func drainRequest(deadline, reason string, now time.Time) (fleet.DrainRequest, error) {
	at, err := app.ParseExpiry(deadline, now)
	return fleet.DrainRequest{Deadline: at, Reason: reason}, err
}

func reasonFlag(cmd *cobra.Command, reason *string) {
	cmd.Flags().StringVar(reason, "reason", "", "`TEXT` with the reason, shown to users")
}

func (a hostCommands) hostLabel() *cobra.Command {
	var set []string
	cmd := a.hostVerb("label", "Set labels of hosts",
		"Set labels of hosts. VMs select hosts by label. An empty value removes a label.",
		func(ctx context.Context, c *fleet.Client, hosts []string) ([]fleet.Host, error) {
			labels, err := app.ParseTags(set)
			if err != nil || len(labels) == 0 {
				return nil, app.Usage("--set rack=b3, or --set rack= to take it away", "no label is named")
			}
			return c.Hosts.Label(ctx, hosts, fleet.HostUpdate{Labels: labels})
		})
	cmd.Flags().StringArrayVar(&set, "set", nil, "label to set, `KEY=VALUE` (repeatable)")
	return cmd
}

func (a hostCommands) hostFence() *cobra.Command {
	var reason string
	cmd := &cobra.Command{Use: "fence HOST", Short: "Declare that nothing runs on a host any more",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.CompleteHosts,
		Long: `Declare that nothing runs on a host any more, because the host is powered off or
disconnected from disks and networks. The server counts the host's VMs as lost, and
re-creates them on other hosts if their cell is configured for that.

Do not fence a host that is running: its VMs would run twice.`,
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			h, err := c.Hosts.Fence(ctx, args[0], reason)
			if err != nil {
				return err
			}
			return a.printHosts([]fleet.Host{h})
		})}
	reasonFlag(cmd, &reason)
	return cmd
}

func (a hostCommands) hostForget() *cobra.Command {
	return &cobra.Command{Use: "forget HOST...", Short: "Remove hosts without VMs from the fleet",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.CompleteHosts,
		Long: `Remove hosts that have no VMs of the server from the fleet. Their certificates are no longer
accepted.`,
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			return a.Each(args, "forgotten", func(host string) error { return c.Hosts.Forget(ctx, host) })
		})}
}
