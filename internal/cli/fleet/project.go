package fleet

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
)

// projectCommands are the commands of projects.
type projectCommands struct{ *app.App }

func (a projectCommands) projectCommand() *cobra.Command {
	project := &cobra.Command{Use: "project", Short: "Show projects, their quotas and their usage",
		Long: "A project has users, a quota and an account. Projects are created with `grange apply`."}
	project.AddCommand(a.projectList(), a.projectShow())
	return project
}

func (a projectCommands) projectList() *cobra.Command {
	t := app.Table[fleet.Project]{None: "no projects that you may see", Head: "PROJECT\tVMS\tCPUS\tMEMORY\tSCRATCH\tNEW VMS GO TO",
		Line: func(p fleet.Project) []any {
			return []any{p.Name, ofQuota(p.Used.VMs, p.Quota.VMs), ofQuota(p.Used.CPUs, p.Quota.CPUs),
				ofQuota(farm.Bytes(p.Used.Memory), farm.Bytes(p.Quota.Memory)),
				ofQuota(farm.Bytes(p.Used.Scratch), farm.Bytes(p.Quota.Scratch)), projectCells(p)}
		}}
	return t.Command(a.App, "List the projects that you can see",
		func(ctx context.Context, c *fleet.Client) ([]fleet.Project, error) { return c.Projects(ctx) })
}

// ofQuota is what is used of what there may be.
func ofQuota[T int | farm.Bytes](used, quota T) string {
	if quota == 0 {
		return fmt.Sprint(used)
	}
	return fmt.Sprintf("%v of %v", used, quota)
}

func projectCells(p fleet.Project) string {
	if len(p.Cells) == 0 {
		return "nowhere"
	}
	return strings.Join(p.Cells, " ")
}

func (a projectCommands) projectShow() *cobra.Command {
	return &cobra.Command{Use: "show PROJECT", Short: "Show a project", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeProjects,
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			p, err := c.Project(ctx, args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(p)
			}
			return a.showProject(p)
		})}
}

func (a projectCommands) completeProjects(cmd *cobra.Command, args []string, typed string) ([]string,
	cobra.ShellCompDirective) {
	return a.CompleteNames(cmd, args, typed, func(ctx context.Context, c *fleet.Client) (names []string, err error) {
		projects, err := c.Projects(ctx)
		for _, p := range projects {
			names = append(names, p.Name)
		}
		return names, err
	})
}

func (a projectCommands) showProject(p fleet.Project) error {
	t := output.NewColumns(a.Out)
	any := func(list []string) string {
		if len(list) == 0 {
			return "any"
		}
		return strings.Join(list, " ")
	}
	fmt.Fprintf(t, "project\t%s\nnew VMs go to\t%s\n", p.Name, projectCells(p))
	if p.Nowhere != "" {
		fmt.Fprintf(t, "\t%s\n", farm.Printable(p.Nowhere))
	}
	fmt.Fprintf(t, "VMs\t%s\nCPUs\t%s\nmemory\t%s\nscratch\t%s\n", ofQuota(p.Used.VMs, p.Quota.VMs),
		ofQuota(p.Used.CPUs, p.Quota.CPUs), ofQuota(farm.Bytes(p.Used.Memory), farm.Bytes(p.Quota.Memory)),
		ofQuota(farm.Bytes(p.Used.Scratch), farm.Bytes(p.Quota.Scratch)))
	fmt.Fprintf(t, "shapes\t%s\nimages\t%s\nnetworks\t%s\n", any(p.Shapes), any(p.Images), any(p.Networks))
	if p.Account != "" {
		fmt.Fprintf(t, "batch account\t%s\n", p.Account)
	}
	if p.Purpose != "" {
		fmt.Fprintf(t, "purpose\t%s\n", p.Purpose)
	}
	if p.Pledge > 0 {
		fmt.Fprintf(t, "pledged\t%s\n", farm.Count(p.Pledge, "CPU"))
	}
	if p.MaxAge > 0 {
		fmt.Fprintf(t, "VMs expire after\t%v\n", time.Duration(p.MaxAge*float64(time.Second)))
	}
	return t.Flush()
}
