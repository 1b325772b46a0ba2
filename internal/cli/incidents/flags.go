package incidents

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
)

// concernFlags are those that name what an incident concerns.
func (a commands) concernFlags(cmd *cobra.Command, c *fleet.Concerns) {
	cmd.Flags().StringSliceVar(&c.Hosts, "host", nil, "`HOSTS` that it concerns")
	cmd.Flags().StringSliceVar(&c.VMs, "vm", nil, "`VMS` that it concerns, as PROJECT/NAME")
	cmd.Flags().StringSliceVar(&c.Findings, "finding", nil, "`RULES` of the audit that found it")
	cmd.Flags().StringSliceVarP(&c.Projects, "project", "p", nil, "`PROJECTS` that it concerns")
	cmd.Flags().StringSliceVar(&c.Cells, "cell", nil, "`CELLS` that it concerns")
	a.completeConcerns(cmd)
}

// completeConcerns offers what the server has, and the rules of the audit.
func (a commands) completeConcerns(cmd *cobra.Command) {
	app.Complete(cmd, "finding", func() []string {
		return app.NamesOf(tuning.Rules(), func(r tuning.Rule) string { return r.ID + "\t" + r.Title })
	})
	for flag, list := range map[string]func(context.Context, *fleet.Client) ([]string, error){
		"host": func(ctx context.Context, c *fleet.Client) ([]string, error) {
			all, _, err := c.Hosts.List(ctx, "")
			return app.NamesOf(all, func(h fleet.Host) string { return h.Name }), err
		},
		"vm": func(ctx context.Context, c *fleet.Client) ([]string, error) {
			all, _, err := c.VMs.List(ctx, fleet.VMFilter{})
			return app.NamesOf(all, func(v fleet.VM) string { return v.Project + "/" + v.Name }), err
		},
		"project": func(ctx context.Context, c *fleet.Client) ([]string, error) {
			all, err := c.Projects(ctx)
			return app.NamesOf(all, func(p fleet.Project) string { return p.Name }), err
		},
		"cell": func(ctx context.Context, c *fleet.Client) ([]string, error) {
			all, _, err := c.Cells.List(ctx)
			return app.NamesOf(all, func(v fleet.Cell) string { return v.Name }), err
		},
	} {
		app.Complete(cmd, flag, func() []string {
			names, _ := a.CompleteNames(cmd, nil, "", list)
			return names
		})
	}
}

func (a commands) severityFlag(cmd *cobra.Command, to *string, about string) {
	cmd.Flags().StringVar(to, "severity", "", about)
	app.Complete(cmd, "severity", func() []string {
		return app.NamesOf(farm.IncidentSeverities, func(s farm.IncidentSeverity) string { return string(s) })
	})
}

// complete offers incidents in a state, "": all, for the first argument.
func (a commands) complete(state string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		return a.CompleteNames(cmd, args, typed, func(ctx context.Context, c *fleet.Client) ([]string, error) {
			all, err := c.Incidents.List(ctx, fleet.IncidentQuery{State: state}, 100)
			return app.NamesOf(all, func(i fleet.Incident) string { return fmt.Sprintf("%d\t%s", i.ID, i.Title) }), err
		})
	}
}
