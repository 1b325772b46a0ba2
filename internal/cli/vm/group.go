package vm

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
)

// groupCommands are the commands of groups of VMs.
type groupCommands struct{ *app.App }

func (a groupCommands) groupCommand() *cobra.Command {
	group := &cobra.Command{Use: "group", Short: "Manage server groups, which place VMs together or apart",
		Long: "A server group belongs to a project and sets how the VMs that are created with `--group` are\n" +
			"placed: affinity, all on one host; anti-affinity, no two on one host; soft-affinity and\n" +
			"soft-anti-affinity, the same where possible."}
	group.AddCommand(a.groupList(), a.groupCreate(), a.groupDelete())
	return group
}

func (a groupCommands) groupTable() app.Table[fleet.Group] {
	return app.Table[fleet.Group]{None: "no server groups", Head: "GROUP\tAFFINITY\tVMS",
		Line: func(g fleet.Group) []any {
			return []any{g.Project + "/" + g.Name, g.Affinity, app.Dash(strings.Join(g.VMs, " "))}
		}}
}

func (a groupCommands) groupList() *cobra.Command {
	return a.groupTable().Command(a.App, "List server groups and their VMs",
		func(ctx context.Context, c *fleet.Client) ([]fleet.Group, error) { return c.Groups.List(ctx) })
}

func (a groupCommands) groupCreate() *cobra.Command {
	var affinity string
	var replace bool
	cmd := &cobra.Command{Use: "create PROJECT/NAME --affinity RULE",
		Short: "Create a server group",
		Long: "Create a server group. One that exists keeps its rule, and the command fails; --replace gives it\n" +
			"another while it has no VMs.",
		Args: cobra.ExactArgs(1), Example: "  grange group create atlas/db --affinity anti-affinity\n  grange vm " +
			"create -p atlas -i sl9 -s medium --name db --count 3 --group db",
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			g, err := groupNamed(args[0])
			if err != nil {
				return err
			}
			g.Affinity, g.Revision = affinity, expected(replace)
			if g, err = c.Groups.Put(ctx, g); err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(g)
			}
			return a.groupTable().Print(a.App, []fleet.Group{g})
		})}
	cmd.Flags().StringVar(&affinity, "affinity", "",
		"`RULE`: affinity, anti-affinity, soft-affinity, soft-anti-affinity")
	cmd.Flags().BoolVar(&replace, "replace", false, "change the rule of a group that exists and has no VMs")
	cmd.MarkFlagRequired("affinity")
	app.Complete(cmd, "affinity", func() []string {
		return []string{string(farm.Together), string(farm.Apart), string(farm.SoftTogether), string(farm.SoftApart)}
	})
	return cmd
}

// expected is the revision that a command creates a group at: none, unless it may replace one.
func expected(replace bool) int64 {
	if replace {
		return 0
	}
	return fleet.Absent
}

// groupNamed reads the name of a server group.
func groupNamed(text string) (fleet.Group, error) {
	project, name, ok := strings.Cut(text, "/")
	if !ok || project == "" || name == "" {
		return fleet.Group{}, app.Usage("write PROJECT/NAME", "%q names no server group", text)
	}
	return fleet.Group{Project: project, Name: name}, nil
}

func (a groupCommands) groupDelete() *cobra.Command {
	return &cobra.Command{Use: "delete PROJECT/NAME...", Short: "Delete server groups that have no VMs",
		Args: cobra.MinimumNArgs(1), RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			return a.Each(args, "deleted", func(name string) error {
				g, err := groupNamed(name)
				if err != nil {
					return err
				}
				return c.Groups.Delete(ctx, g.Project, g.Name)
			})
		})}
}
