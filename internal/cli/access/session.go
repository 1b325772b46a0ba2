package access

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
)

// sessionCommands are the commands of who is signed in.
type sessionCommands struct{ *app.App }

func (a sessionCommands) sessionsCommand() *cobra.Command {
	sessions := &cobra.Command{Use: "sessions", Short: "List and end sessions of browsers and command lines"}
	sessions.AddCommand(a.list(), a.end())
	return sessions
}

func (a sessionCommands) list() *cobra.Command {
	var user string
	t := app.Table[fleet.Session]{None: "no sessions", Head: "ID\tUSER\tSIGNED IN BY\tFROM\tLAST USE\tENDS\tCLIENT",
		Line: func(s fleet.Session) []any {
			return []any{s.ID, s.User, s.Means + " " + farm.Printable(s.Source), app.Dash(s.Address),
				s.Used.Local().Format(time.DateTime), s.Ends.Local().Format(time.DateTime), farm.Printable(s.Client)}
		}}
	cmd := t.Command(a.App, "List who is signed in",
		func(ctx context.Context, c *fleet.Client) ([]fleet.Session, error) { return c.Sessions.List(ctx, user) })
	cmd.Long = `List the sessions of browsers and of "grange login": your own, or, with --user, those of another
user. On the server's own socket, root sees those of all users.`
	cmd.Flags().StringVar(&user, "user", "", "list the sessions of this `USER` (default: your own)")
	return cmd
}

func (a sessionCommands) end() *cobra.Command {
	return &cobra.Command{Use: "end ID...", Short: "End sessions", Args: cobra.MinimumNArgs(1),
		Long: "End sessions: their browsers and command lines must sign in again. To keep a user out, disable\n" +
			"the user, which ends all its sessions: grange user set USER --disable.",
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			return a.Each(args, "ended", func(id string) error { return c.Sessions.End(ctx, id) })
		})}
}
