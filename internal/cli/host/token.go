package host

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
)

// hostTokenCommands are the commands of tokens by which hosts join.
type hostTokenCommands struct{ *app.App }

func (a hostTokenCommands) hostToken() *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Manage the tokens with which hosts join"}
	cmd.AddCommand(a.hostTokenCreate(), a.hostTokenList(), a.hostTokenRevoke())
	return cmd
}

func (a hostTokenCommands) hostTokenCreate() *cobra.Command {
	var r fleet.JoinTokenRequest
	var labels []string
	var valid time.Duration
	cmd := &cobra.Command{Use: "create --cell CELL",
		Short: "Create a token with which a host joins the fleet", Args: cobra.NoArgs,
		Long: `Create a token with which one host can join a cell, once, and print it on a line by itself.
The token is not printed again. Keep it secret: until it expires, anyone who has it can join
a host, and hosts receive users' VMs.`,
		Example: "  grange host token create --cell main\n  grange host token create --cell main --name wn-17   # " +
			"for a host installed anew: join --replace",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if r.Labels, err = app.ParseTags(labels); err != nil {
				return err
			}
			r.Valid = valid.Seconds()
			return a.createJoinToken(cmd.Context(), r)
		}}
	flags := cmd.Flags()
	flags.StringVar(&r.Cell, "cell", "", "`CELL` of the host")
	flags.StringVar(&r.Name, "name", "", "`NAME` of the host (default: any)")
	flags.StringArrayVar(&labels, "label", nil, "label of the host, `KEY=VALUE` (repeatable)")
	flags.DurationVar(&valid, "valid", time.Hour, "time until the token expires; at most 30 days")
	flags.IntVar(&r.Count, "count", 1, "number of hosts that may join with the token")
	cmd.MarkFlagRequired("cell")
	return cmd
}

func (a hostTokenCommands) createJoinToken(ctx context.Context, r fleet.JoinTokenRequest) error {
	c, err := a.Fleet()
	if err != nil {
		return err
	}
	k, err := c.JoinTokens.Create(ctx, r)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(k)
	}
	_, err = fmt.Fprintln(a.Out, k.Secret)
	return err
}

func (a hostTokenCommands) hostTokenList() *cobra.Command {
	t := app.Table[fleet.JoinToken]{None: "no join tokens", Head: "ID\tCELL\tNAME\tUSED\tVALID UNTIL\tBY",
		Line: func(k fleet.JoinToken) []any {
			return []any{k.ID, k.Cell, app.Dash(k.Name), fmt.Sprintf("%d of %d", k.Uses, max(k.Count, 1)),
				k.Expires.Local().Format(time.DateTime), k.By}
		}}
	return t.Command(a.App, "List join tokens, without their secrets",
		func(ctx context.Context, c *fleet.Client) ([]fleet.JoinToken, error) {
			tokens, err := c.JoinTokens.List(ctx)
			slices.SortFunc(tokens, func(x, y fleet.JoinToken) int {
				return cmp.Or(x.Expires.Compare(y.Expires),
					cmp.Compare(x.ID, y.ID))
			})
			return tokens, err
		})
}

func (a hostTokenCommands) hostTokenRevoke() *cobra.Command {
	return &cobra.Command{Use: "revoke ID...", Short: "Revoke join tokens", Args: cobra.MinimumNArgs(1),
		Long: "Revoke join tokens, so that no more hosts can join with them. Hosts that have joined stay in\n" +
			"the fleet; `grange host forget` removes a host.",
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			return a.Each(args, "revoked", func(id string) error { return c.JoinTokens.Delete(ctx, id) })
		})}
}
