package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
)

func (a *app) hostToken() *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Tokens by which hosts join"}
	cmd.AddCommand(a.hostTokenCreate(), a.hostTokenList(), a.hostTokenRevoke())
	return cmd
}

func (a *app) hostTokenCreate() *cobra.Command {
	var r fleet.JoinTokenRequest
	var labels []string
	var valid time.Duration
	cmd := &cobra.Command{Use: "create --cell CELL", Short: "Make a token by which a host joins", Args: cobra.NoArgs,
		Long: `Makes a token by which one host joins a cell, once, and prints it alone on a line. It is told once: whoever has it before it ends can
join a host, and hosts are given users' VMs.`,
		Example: "  grange host token create --cell main\n  grange host token create --cell main --name wn-17   # " +
			"for a host installed anew: join --replace",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if r.Labels, err = parseTags(labels); err != nil {
				return err
			}
			r.Valid = valid.Seconds()
			return a.createJoinToken(cmd.Context(), r)
		}}
	flags := cmd.Flags()
	flags.StringVar(&r.Cell, "cell", "", "the `CELL` of the host")
	flags.StringVar(&r.Name, "name", "", "the `NAME` of the host; any when not given")
	flags.StringArrayVar(&labels, "label", nil, "a label of the host, `KEY=VALUE`; several times for several")
	flags.DurationVar(&valid, "valid", time.Hour, "how long it is valid; 30 days at most")
	flags.IntVar(&r.Count, "count", 1, "how many hosts may join by it")
	cmd.MarkFlagRequired("cell")
	return cmd
}

func (a *app) createJoinToken(ctx context.Context, r fleet.JoinTokenRequest) error {
	c, err := a.fleet()
	if err != nil {
		return err
	}
	k, err := c.CreateJoinToken(ctx, r)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(k)
	}
	_, err = fmt.Fprintln(a.out, k.Secret)
	return err
}

func (a *app) hostTokenList() *cobra.Command {
	t := table[fleet.JoinToken]{"no join tokens", "ID\tCELL\tNAME\tUSED\tVALID UNTIL\tBY",
		func(k fleet.JoinToken) []any {
			return []any{k.ID, k.Cell, dash(k.Name), fmt.Sprintf("%d of %d", k.Uses, max(k.Count, 1)),
				k.Expires.Local().Format(time.DateTime), k.By}
		}}
	return t.command(a, "List join tokens, without their secrets",
		func(ctx context.Context, c *fleet.Client) ([]fleet.JoinToken, error) {
			tokens, err := c.JoinTokens(ctx)
			slices.SortFunc(tokens, func(x, y fleet.JoinToken) int {
				return cmp.Or(x.Expires.Compare(y.Expires),
					cmp.Compare(x.ID, y.ID))
			})
			return tokens, err
		})
}

func (a *app) hostTokenRevoke() *cobra.Command {
	return &cobra.Command{Use: "revoke ID...", Short: "Take join tokens back", Args: cobra.MinimumNArgs(1),
		Long: "Takes join tokens back: no more hosts join by them. Hosts that did stay; `grange host forget` takes " +
			"one out.",
		RunE: a.onServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			return a.each(args, "revoked", func(id string) error { return c.DeleteJoinToken(ctx, id) })
		})}
}
