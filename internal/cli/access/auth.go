package access

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
)

// authCommands are the commands that print what one may do.
type authCommands struct{ *app.App }

func (a authCommands) authCommand() *cobra.Command {
	auth := &cobra.Command{Use: "auth", Short: "Print your identity and permissions, and who is signed in"}
	auth.AddCommand(a.authWhoami(), a.authExplain(), sessionCommands(a).sessionsCommand())
	return auth
}

func (a authCommands) authWhoami() *cobra.Command {
	return &cobra.Command{Use: "whoami", Short: "Print your user name and roles on the server", Args: cobra.NoArgs,
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, _ []string) error {
			who, err := c.Whoami(ctx)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(who)
			}
			t := output.NewColumns(a.Out)
			fmt.Fprintf(t, "user\t%s\nby\t%s %s\n", who.User, who.Means, farm.Printable(who.Source))
			if who.Root {
				fmt.Fprintf(t, "roles\tall: root on the server's own socket\n")
				return t.Flush()
			}
			fmt.Fprintf(t, "roles\t%s\n", grantsText(who.Grants))
			if who.Role != "" {
				fmt.Fprintf(t, "at most\t%s\n", who.Role)
			}
			if len(who.Projects) > 0 {
				fmt.Fprintf(t, "only in\t%s\n", strings.Join(who.Projects, " "))
			}
			return t.Flush()
		})}
}

func (a authCommands) authExplain() *cobra.Command {
	var user, file, issuer string
	cmd := &cobra.Command{Use: "explain {ACTION [TARGET] | --claims FILE}",
		Short: "Explain why an action is allowed or denied, or what claims give",
		Args:  cobra.MaximumNArgs(2),
		Long: `Print each rule that the server evaluates for an action, and the result. ACTION is the name
used in the audit log: vm.create, host.drain, farm.apply. TARGET is project:NAME, cell:NAME,
host:NAME, vm:PROJECT/NAME or user:NAME; without TARGET it is the whole farm.

With --claims, print what a sign-in with the claims in FILE would give: which user, which roles
by which mapping, and what is ignored and why. FILE has the claims as JSON, as the payload of
an issuer's token. Nothing is changed, and the issuer is not asked.`,
		Example: "  grange auth explain --claims claims.json\n" +
			"  grange auth explain vm.create project:atlas\n" +
			"  grange auth explain vm.delete vm:atlas/web-1 --user bob",
		ValidArgsFunction: app.CompleteFirst(func() []string {
			var words []string
			for _, action := range policy.Actions() {
				words = append(words, string(action))
			}
			return words
		}),
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			if (len(args) == 0) == (file == "") {
				return app.Usage("ACTION [TARGET], or --claims FILE", "name an action, or a file of claims")
			}
			if file != "" {
				return a.explainClaims(ctx, c, file, issuer)
			}
			target := ""
			if len(args) > 1 {
				target = args[1]
			}
			said, err := c.Explain(ctx, user, args[0], target)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(said)
			}
			word := "may not"
			if said.Allowed {
				word = "may"
			}
			fmt.Fprintf(a.Out, "%s %s %s on %s\n", said.User, word, said.Action, farm.Printable(orFarm(said.Target)))
			for _, line := range said.Why {
				fmt.Fprintf(a.Out, "  %s\n", farm.Printable(line))
			}
			return nil
		})}
	cmd.Flags().StringVar(&file, "claims", "", "`FILE` with the claims of an issuer's token, as JSON")
	cmd.Flags().StringVar(&issuer, "issuer", "", "`NAME` of the claims' issuer (default: that of claim iss)")
	cmd.Flags().StringVar(&user, "user", "", "`USER` to explain the action for (default: yourself)")
	return cmd
}

func orFarm(target string) string {
	if target == "" {
		return "the whole farm"
	}
	return target
}

// auditCommands are the commands of the log of actions.
type auditCommands struct{ *app.App }

func (a auditCommands) auditCommand() *cobra.Command {
	audit := &cobra.Command{Use: "audit", Short: "Read the server's audit log"}
	audit.AddCommand(a.auditList())
	return audit
}

func (a auditCommands) auditList() *cobra.Command {
	var project, who string
	var before int64
	var limit int
	entries := app.Table[fleet.Entry]{None: "no entries", Head: "ID\tTIME\tWHO\tACTION\tTARGET\tOUTCOME\tREASON",
		Line: func(e fleet.Entry) []any {
			return []any{e.ID, e.Time.Local().Format(time.DateTime), farm.Printable(e.Who), e.Action,
				farm.Printable(e.Target), e.Outcome, farm.Printable(e.Reason)}
		}}
	cmd := &cobra.Command{Use: "list", Short: "List the audit log, newest entry first", Args: cobra.NoArgs,
		Long: `List the entries of the audit log, newest first: actions that were done, that were refused,
with the reason, and that failed. Operators can read the entries of their projects; with
--who, every user can read their own.`,
		Example: "  grange audit list --project atlas\n  grange audit list --who ann --limit 20",
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, _ []string) error {
			all, err := c.Audit(ctx, project, who, before, limit)
			if err != nil {
				return err
			}
			return entries.Print(a.App, all)
		})}
	cmd.Flags().StringVarP(&project, "project", "p", "", "list only entries of this `PROJECT`")
	cmd.Flags().StringVar(&who, "who", "", "list only entries of this `USER`")
	cmd.Flags().Int64Var(&before, "before", 0, "list only entries older than entry `ID`")
	cmd.Flags().IntVar(&limit, "limit", 100, "maximum number of entries, at most 1000")
	return cmd
}
