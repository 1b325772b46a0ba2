// Package usage has the commands of what VMs have used.
package usage

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/usage"
)

// Commands are the commands of what VMs have used.
func Commands(a *app.App) []*cobra.Command { return []*cobra.Command{commands{a}.usage()} }

type commands struct{ *app.App }

// choice says which records a command is about.
type choice struct {
	fleet.UsageQuery
	thisHost bool
}

func (q *choice) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&q.User, "user", "", "only the records of this `USER`")
	f.StringVarP(&q.Project, "project", "p", "", "only the records of this `PROJECT`")
	f.StringVar(&q.Cell, "cell", "", "only the records of this `CELL`")
	f.StringVar(&q.Kind, "kind", "", "only the records of this `KIND`: job, worker, vm or metal (jobs without a VM)")
	f.BoolVar(&q.thisHost, "this-host", false, "read the records of this host's agent, without a server")
}

// each calls do with all records of the choice.
func (c commands) each(ctx context.Context, q choice, do func(api.Usage) error) error {
	if !q.thisHost {
		server, err := c.Fleet()
		if err != nil {
			return err
		}
		return server.Usage.Each(ctx, q.UsageQuery, do)
	}
	if q.Cell+q.Project != "" {
		return app.Usage("leave them out, or ask the server", "a host does not know the cell and the project of its jobs")
	}
	first, last, err := usage.Months(q.From, q.To, time.Now())
	if err != nil {
		return err
	}
	from, err := usage.ParseMonth(first)
	if err != nil {
		return err
	}
	to, err := usage.ParseMonth(usage.Next(last))
	if err != nil {
		return err
	}
	seen := map[string]bool{} // a host that was cut off may have written a record twice
	// An interval of the last day ends when the month is over.
	return c.Client().Usage(ctx, from, to.AddDate(0, 0, 1), func(u api.Usage) error {
		if u.Month = usage.Month(u); u.Month < first || u.Month > last || seen[u.ID] ||
			q.User != "" && u.User != q.User || q.Kind != "" && u.Kind != q.Kind {
			return nil
		}
		seen[u.ID] = true
		return do(u)
	})
}

func (c commands) usage() *cobra.Command {
	var q choice
	cmd := &cobra.Command{Use: "usage", Short: "Print what VMs have used", Args: cobra.NoArgs,
		Long: `Print what the VMs of jobs, workers and cloud VMs have used, added up. You see your own usage,
that of projects and cells in which you have a role, or all of it if you can read the whole farm.

CORE HOURS are cores times the time that the VM was there. CPU HOURS are what QEMU used, as the
kernel counts it: of the guest and of the host's work for it. JOB HOURS are the CPU time of the
jobs in the VMs alone. SCORE HOURS are core hours times the site's score of a core; they are there
only for hardware and sizes for which the site has given a score.`,
		Example: "  grange usage --by user --from 2026-10 --to 2026-12\n" +
			"  grange usage --this-host --by month",
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := c.sum(cmd.Context(), q)
			if err != nil {
				return err
			}
			if c.JSON {
				return c.PrintJSON(out)
			}
			return c.print(out)
		}}
	q.flags(cmd)
	cmd.Flags().StringVar(&q.From, "from", "", "first `MONTH`, as 2026-10 (default: this month)")
	cmd.Flags().StringVar(&q.To, "to", "", "last `MONTH`, included")
	cmd.Flags().StringVar(&q.By, "by", "project", "add up by `WORD`: user, project, account, vo, cell, host, kind or month")
	cmd.AddCommand(c.export(), c.close(), c.check(), c.withdraw())
	return cmd
}

func (c commands) sum(ctx context.Context, q choice) (fleet.UsageSummary, error) {
	if !q.thisHost {
		server, err := c.Fleet()
		if err != nil {
			return fleet.UsageSummary{}, err
		}
		return server.Usage.Sum(ctx, q.UsageQuery)
	}
	first, last, err := usage.Months(q.From, q.To, time.Now())
	if err != nil {
		return fleet.UsageSummary{}, err
	}
	sum, err := usage.NewSum(q.By)
	if err != nil {
		return fleet.UsageSummary{}, err
	}
	err = c.each(ctx, q, func(u api.Usage) error { sum.Add(u); return nil })
	return fleet.UsageSummary{By: q.By, From: first, To: last, Lines: sum.Lines()}, err
}

func (c commands) print(s fleet.UsageSummary) error {
	if len(s.Lines) == 0 {
		_, err := fmt.Fprintf(c.Out, "no usage from %s to %s\n", s.From, s.To)
		return err
	}
	w := output.NewColumns(c.Out)
	fmt.Fprintf(w, "%s\tRECORDS\tCORE HOURS\tCPU HOURS\tJOB HOURS\tSCORE HOURS\n", strings.ToUpper(s.By))
	for _, l := range s.Lines {
		var scores []string
		for _, p := range l.Scored {
			text := fmt.Sprintf("%.2f %s", p.ScoreHours, farm.Printable(p.Unit))
			if p.CoreHours < l.CoreHours*(1-1e-9) {
				text += fmt.Sprintf(" (of %.2f core hours)", p.CoreHours)
			}
			scores = append(scores, text)
		}
		w.Row(cmp.Or(farm.Printable(l.Key), "-"), l.Records, fmt.Sprintf("%.2f", l.CoreHours),
			cpuHours(l), fmt.Sprintf("%.2f", l.JobHours), cmp.Or(strings.Join(scores, ", "), "-"))
	}
	return w.Flush()
}

// cpuHours is a sum's CPU time, and the core hours of the records in it whose CPU time is not known.
func cpuHours(l fleet.UsageLine) string {
	text := fmt.Sprintf("%.2f", l.CPUHours)
	if l.CPUUnknown > 0 {
		text += fmt.Sprintf(" (unknown for %.2f core hours)", l.CPUUnknownHours)
	}
	return text
}

func (c commands) close() *cobra.Command {
	return &cobra.Command{Use: "close MONTH", Short: "Close a month and those before it", Args: cobra.ExactArgs(1),
		Long: `Close a month and all months before it, for good. A record that comes later, as from a host that
was cut off, counts in the first month that is open, and is marked as late.`,
		Example: "  grange usage close 2026-10",
		RunE: c.OnServer(func(ctx context.Context, server *fleet.Client, args []string) error {
			closed, err := server.Usage.Close(ctx, args[0])
			if err != nil {
				return err
			}
			if c.JSON {
				return c.PrintJSON(closed)
			}
			_, err = fmt.Fprintf(c.Out, "closed up to %s\n", closed.Month)
			return err
		})}
}
