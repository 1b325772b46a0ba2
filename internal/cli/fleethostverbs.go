package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
)

// hostVerb is a command on any number of hosts, which the server does all at once.
func (a *app) hostVerb(name, short, long string,
	do func(context.Context, *fleet.Client, []string) ([]fleet.Host, error)) *cobra.Command {
	return &cobra.Command{Use: name + " HOST...", Short: short, Long: long + " " + whichHosts,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeHosts,
		RunE: a.onServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			hosts, err := do(ctx, c, args)
			if err != nil {
				return err
			}
			return a.printHosts(hosts)
		})}
}

func (a *app) hostOpen() *cobra.Command {
	return a.hostVerb("open", "Open hosts to new VMs, and end their drains",
		"Opens hosts to new VMs and ends their drains, in their batch system too where they have one.",
		func(ctx context.Context, c *fleet.Client, hosts []string) ([]fleet.Host, error) {
			return c.OpenHosts(ctx, hosts)
		})
}

func (a *app) hostClose() *cobra.Command {
	var reason string
	cmd := a.hostVerb("close", "Close hosts to new VMs",
		"Closes hosts to new VMs, and to jobs of their batch system where they have one. What runs there runs on.",
		func(ctx context.Context, c *fleet.Client, hosts []string) ([]fleet.Host, error) {
			return c.CloseHosts(ctx, hosts, reason)
		})
	reasonFlag(cmd, &reason)
	return cmd
}

func (a *app) hostDrain() *cobra.Command {
	var reason, deadline string
	cmd := a.hostVerb("drain", "Empty hosts",
		"Closes hosts and tells the owners of what runs there. At the deadline VMs that still run are stopped; "+
			"without one they end when they end. `grange host list` shows what is left.",
		func(ctx context.Context, c *fleet.Client, hosts []string) ([]fleet.Host, error) {
			r, err := drainRequest(deadline, reason, time.Now())
			if err != nil {
				return nil, err
			}
			return c.DrainHosts(ctx, hosts, r)
		})
	cmd.Example = "  grange host drain wn-17 --deadline 24h --reason 'new memory'\n  grange host drain 'cell:main'"
	cmd.Flags().StringVar(&deadline, "deadline", "", "stop what still runs then: a `TIME`, or how long to it, as 24h")
	reasonFlag(cmd, &reason)
	return cmd
}

// drainRequest reads the flags of a drain.
func drainRequest(deadline, reason string, now time.Time) (fleet.DrainRequest, error) {
	at, err := parseExpiry(deadline, now)
	return fleet.DrainRequest{Deadline: at, Reason: reason}, err
}

func reasonFlag(cmd *cobra.Command, reason *string) {
	cmd.Flags().StringVar(reason, "reason", "", "why, for `PEOPLE` who ask")
}

func (a *app) hostLabel() *cobra.Command {
	var set []string
	cmd := a.hostVerb("label", "Label hosts",
		"Changes labels, by which VMs choose hosts. An empty value takes a label away.",
		func(ctx context.Context, c *fleet.Client, hosts []string) ([]fleet.Host, error) {
			labels, err := parseTags(set)
			if err != nil || len(labels) == 0 {
				return nil, usage("--set rack=b3, or --set rack= to take it away", "no label is named")
			}
			return c.LabelHosts(ctx, hosts, fleet.HostUpdate{Labels: labels})
		})
	cmd.Flags().StringArrayVar(&set, "set", nil, "a label, `KEY=VALUE`; several times for several")
	return cmd
}

func (a *app) hostFence() *cobra.Command {
	var reason string
	cmd := &cobra.Command{Use: "fence HOST", Short: "Vouch that nothing of a host runs any more",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeHosts,
		Long: `Takes your word that nothing of a host runs any more: it is off, or cut from disks and networks. Its VMs are lost then, and made anew elsewhere
where their cell says so. Of a host that does run this makes VMs run twice.`,
		RunE: a.onServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			h, err := c.FenceHost(ctx, args[0], reason)
			if err != nil {
				return err
			}
			return a.printHosts([]fleet.Host{h})
		})}
	reasonFlag(cmd, &reason)
	return cmd
}

func (a *app) hostForget() *cobra.Command {
	return &cobra.Command{Use: "forget HOST...", Short: "Take hosts without VMs out of the fleet",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeHosts,
		Long: "Takes hosts that have no VMs of the server out of the fleet. Their certificates count no more.",
		RunE: a.onServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			return a.each(args, "forgotten", func(host string) error { return c.ForgetHost(ctx, host) })
		})}
}
