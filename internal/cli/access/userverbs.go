package access

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
)

// userFlags say what becomes of a user.
type userFlags struct {
	add, remove     []string // subjects
	login, noLogin  []string
	disable, enable bool
}

func (a userCommands) userSet() *cobra.Command {
	var f userFlags
	cmd := &cobra.Command{Use: "set USER", Short: "Create a user, or change one", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeUsers,
		Long: "Create a user, or change an existing one. Properties without a flag on the command line are\n" +
			"not changed. A new user has no role; assign one with `grange user grant`.",
		Example: "  grange user set ann --subject 'CN=Ann Smith,O=Grid,C=CH'\n  grange user set ann --disable",
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			users, err := c.Users.List(ctx)
			if err != nil {
				return err
			}
			u := fleet.User{Name: args[0], Revision: fleet.Absent}
			if i := slices.IndexFunc(users, func(o fleet.User) bool { return o.Name == args[0] }); i >= 0 {
				u = users[i]
			}
			if u, err = c.Users.Put(ctx, f.apply(u)); err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(u)
			}
			state := ""
			if len(u.Logins) > 0 {
				state = ", " + farm.Count(len(u.Logins), "login")
			}
			if u.Disabled {
				state += ", disabled"
			}
			_, err = fmt.Fprintf(a.Out, "user %s: %s%s\n", u.Name, farm.Count(len(u.Subjects), "certificate"), state)
			return err
		})}
	cmd.Flags().StringArrayVar(&f.add, "subject", nil,
		"`SUBJECT` of a client certificate of this user, or NAME:SUBJECT for the authority NAME (repeatable)")
	cmd.Flags().StringArrayVar(&f.remove, "without-subject", nil,
		"`SUBJECT` to remove from the user, as printed by grange user list (repeatable)")
	cmd.Flags().StringArrayVar(&f.login, "login", nil,
		"`LOGIN` of this user: an issuer's name, \":\" and the claim sub, as cern:0f3c (repeatable)")
	cmd.Flags().StringArrayVar(&f.noLogin, "without-login", nil, "`LOGIN` to remove from the user (repeatable)")
	cmd.Flags().BoolVar(&f.disable, "disable", false, "disable the user; its VMs and roles stay")
	cmd.Flags().BoolVar(&f.enable, "enable", false, "enable the user")
	cmd.MarkFlagsMutuallyExclusive("disable", "enable")
	return cmd
}

func (f userFlags) apply(u fleet.User) fleet.User {
	u.Subjects = slices.DeleteFunc(slices.Concat(u.Subjects, f.add),
		func(s string) bool { return slices.Contains(f.remove, s) })
	u.Logins = slices.DeleteFunc(slices.Concat(u.Logins, f.login),
		func(l string) bool { return slices.Contains(f.noLogin, l) })
	if f.disable || f.enable {
		u.Disabled = f.disable
	}
	return u
}

func (a userCommands) userDelete() *cobra.Command {
	return &cobra.Command{Use: "delete USER...", Short: "Delete users without VMs, with their roles and tokens",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeUsers,
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			return a.Each(args, "deleted", func(name string) error { return c.Users.Delete(ctx, name) })
		})}
}

func (a userCommands) userGrant() *cobra.Command {
	return a.grantVerb("grant", "Grant a role to a user",
		"  grange user grant ann member --project atlas\n  grange user grant otto operator --cell general",
		fleet.GrantClient.Put)
}

func (a userCommands) userRevoke() *cobra.Command {
	return a.grantVerb("revoke", "Revoke a role from a user", "  grange user revoke ann member --project atlas",
		fleet.GrantClient.Delete)
}

// grantVerb is a command on one role of one user; it ends with the roles that are left.
func (a userCommands) grantVerb(name, short, example string,
	do func(fleet.GrantClient, context.Context, fleet.Grant) error) *cobra.Command {
	var g fleet.Grant
	cmd := &cobra.Command{Use: name + " USER ROLE [--project PROJECT | --cell CELL]", Short: short,
		Args: cobra.ExactArgs(2), Example: example,
		Long: short + ". ROLE is one of " + strings.Join(roleWords(), ", ") +
			".\n\nThe role applies to one project (--project), to one cell (--cell), or, without either flag, " +
			"to\nthe whole farm.",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return app.Beginning(typed, "", roleWords()), cobra.ShellCompDirectiveNoFileComp
			}
			return a.completeUsers(cmd, args, typed)
		},
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			g.User, g.Role = args[0], args[1]
			if err := do(c.Grants, ctx, g); err != nil {
				return err
			}
			left, err := c.Grants.List(ctx, g.User)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(append([]fleet.Grant{}, left...))
			}
			_, err = fmt.Fprintf(a.Out, "user %s: %s\n", output.Visible(g.User), grantsText(left))
			return err
		})}
	cmd.Flags().StringVarP(&g.Project, "project", "p", "", "`PROJECT` that the role applies to")
	cmd.Flags().StringVar(&g.Cell, "cell", "", "`CELL` that the role applies to")
	cmd.MarkFlagsMutuallyExclusive("project", "cell")
	return cmd
}

func (a userCommands) completeUsers(cmd *cobra.Command, args []string, typed string) ([]string,
	cobra.ShellCompDirective) {
	return a.CompleteNames(cmd, args, typed, func(ctx context.Context, c *fleet.Client) ([]string, error) {
		users, err := c.Users.List(ctx)
		return app.NamesOf(users, func(u fleet.User) string { return u.Name }), err
	})
}
