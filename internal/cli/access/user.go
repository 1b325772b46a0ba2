package access

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
)

// userCommands are the commands of users and their roles.
type userCommands struct{ *app.App }

func (a userCommands) userCommand() *cobra.Command {
	user := &cobra.Command{Use: "user", Short: "Manage users of the server",
		Long: "A user is a person, or a program that acts as one. Users and their roles are managed with\n" +
			"these commands or with `grange apply`."}
	user.AddCommand(a.userList(), a.userSet(), a.userDelete(), a.userGrant(), a.userRevoke())
	return user
}

// userLine is a user with its roles.
type userLine struct {
	fleet.User
	Grants []fleet.Grant `json:"grants"`
}

func (a userCommands) userList() *cobra.Command {
	t := app.Table[userLine]{None: "", Head: "USER\tROLES\tCERTIFICATES\tLOGINS", Line: func(l userLine) []any {
		name := l.Name
		if l.Disabled {
			name += " (disabled)"
		}
		return []any{name, grantsText(l.Grants), farm.Printable(strings.Join(l.Subjects, " | ")),
			farm.Printable(strings.Join(l.Logins, " | "))}
	}}
	return t.Command(a.App, "List users with their roles", userLines)
}

func userLines(ctx context.Context, c *fleet.Client) (lines []userLine, err error) {
	users, err := c.Users.List(ctx)
	if err != nil {
		return nil, err
	}
	grants, err := c.Grants.List(ctx, "")
	for _, u := range users {
		own := slices.DeleteFunc(slices.Clone(grants), func(g fleet.Grant) bool { return g.User != u.Name })
		lines = append(lines, userLine{User: u, Grants: append([]fleet.Grant{}, own...)})
	}
	return lines, err
}

// grantsText are roles for people: "member of atlas, operator of cell b7, admin".
func grantsText(grants []fleet.Grant) string {
	var words []string
	for _, g := range grants {
		switch {
		case g.Project != "":
			words = append(words, g.Role+" of "+g.Project)
		case g.Cell != "":
			words = append(words, g.Role+" of cell "+g.Cell)
		default:
			words = append(words, g.Role+" everywhere")
		}
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

// tokenCommands are the commands of users' tokens.
type tokenCommands struct{ *app.App }

func (a tokenCommands) tokenCommand() *cobra.Command {
	token := &cobra.Command{Use: "token", Short: "Manage API tokens",
		Long: `A token is a secret that authenticates a user to the server. Keep it in a file that only you
can read, and set $GRANGE_TOKEN_FILE, or name the file in client.toml.`}
	token.AddCommand(a.tokenCreate(), a.tokenList(), a.tokenRevoke())
	return token
}

func (a tokenCommands) tokenCreate() *cobra.Command {
	var r fleet.TokenRequest
	var expires string
	cmd := &cobra.Command{Use: "create", Short: "Create a token, and print it once", Args: cobra.NoArgs,
		Long: `Create a token and print its secret. The secret is not stored and cannot be printed again. A
token has the permissions of its user, or fewer: it can be limited to a role, to some
projects, and in time.`,
		Example: "  (umask 077; grange token create --note laptop --expires 90d > ~/.config/grange/token)\n" +
			"  grange token create --user robot --role reader --expires 1d",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if r.Expires, err = app.ParseExpiry(expires, time.Now()); err != nil {
				return err
			}
			c, err := a.Fleet()
			if err != nil {
				return err
			}
			k, err := c.Tokens.Create(cmd.Context(), r)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(k)
			}
			fmt.Fprintf(a.Err, "grange: note: token %s of user %s, %s; this is the only time that it is shown\n", k.ID,
				k.User, tokenEnd(k))
			fmt.Fprintln(a.Out, k.Secret)
			return nil
		}}
	cmd.Flags().StringVar(&r.User, "user", "", "`USER` that the token is for (default: yourself)")
	cmd.Flags().StringVar(&r.Note, "note", "", "`TEXT` that describes where the token is used")
	cmd.Flags().StringVar(&r.Role, "role", "",
		"highest `ROLE` of the token: reader, member, operator or admin (default: the user's roles)")
	cmd.Flags().StringSliceVar(&r.Projects, "project", nil, "limit the token to these `PROJECTS`")
	cmd.Flags().StringVar(&expires, "expires", "",
		"`TIME` at which the token expires: 12h, 90d or 2027-01-31T18:00:00Z (default: never)")
	app.Complete(cmd, "role", roleWords)
	return cmd
}

func roleWords() []string {
	var words []string
	for _, r := range farm.Roles {
		words = append(words, string(r))
	}
	return words
}

func tokenEnd(k fleet.Token) string {
	if k.Expires == nil {
		return "which never expires"
	}
	return "which expires at " + k.Expires.Format(time.RFC3339)
}

func (a tokenCommands) tokenList() *cobra.Command {
	var user string
	t := app.Table[fleet.Token]{None: "no tokens", Head: "ID\tUSER\tAT MOST\tPROJECTS\tCREATED\tEXPIRES\tNOTE",
		Line: func(k fleet.Token) []any {
			expires := "never"
			if k.Expires != nil {
				expires = k.Expires.Format(time.DateOnly)
			}
			return []any{k.ID, k.User, app.Dash(k.Role), cmp.Or(strings.Join(k.Projects, " "), "all"),
				k.Created.Format(time.DateOnly), expires, farm.Printable(k.Note)}
		}}
	cmd := t.Command(a.App, "List tokens, without their secrets",
		func(ctx context.Context, c *fleet.Client) ([]fleet.Token, error) { return c.Tokens.List(ctx, user) })
	cmd.Flags().StringVar(&user, "user", "", "list the tokens of this `USER` (default: your own)")
	return cmd
}

func (a tokenCommands) tokenRevoke() *cobra.Command {
	return &cobra.Command{Use: "revoke ID...", Short: "Revoke tokens", Args: cobra.MinimumNArgs(1),
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			return a.Each(args, "revoked", func(id string) error { return c.Tokens.Delete(ctx, id) })
		})}
}
