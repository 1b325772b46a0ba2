package job

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
)

// jobCommands are the commands of jobs on all hosts.
type jobCommands struct{ *app.App }

func (a jobCommands) jobCommand() *cobra.Command {
	job := &cobra.Command{Use: "job", Short: "List the VMs of jobs and workers on all hosts",
		Long: `List the VMs of jobs and workers on all hosts of the fleet. You see those of projects and cells
in which you have a role, or all of them if you can read the whole farm; your own, where the
site says that accounts of hosts and users of the fleet are the same people.

What has not ended is as its host reported it last. A job that never had a VM leaves nothing
when it has ended. 'grange usage' has what jobs that have ended used.`}
	job.AddCommand(a.list(), a.show())
	return job
}

func (a jobCommands) list() *cobra.Command {
	var q fleet.JobQuery
	var limit int
	table := app.Table[fleet.Job]{None: "no jobs",
		Head: "ID\tSTATE\tUSER\tHOST\tJOB\tCPUS\tMEMORY\tIMAGE\tASKED\tSTART\tNOTE", Line: func(j fleet.Job) []any {
			return []any{j.ID, j.State, app.Dash(j.User), app.Dash(j.Host), app.Dash(nameOf(j)), j.Cores,
				farm.Bytes(j.Memory).Rounded(), app.Dash(j.Image), clock(j.Asked), startText(j), app.Dash(note(j))}
		}}
	cmd := &cobra.Command{Use: "list", Short: "List jobs that have not ended", Args: cobra.NoArgs,
		Long: `List jobs that have not ended, newest first. START is what the start of the VM took so far,
with waiting for room.`,
		Example: "  grange job list --state waiting --host wn-0017\n  grange job list --user ann --json",
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, _ []string) error {
			all, err := c.Jobs.List(ctx, q, limit)
			if err != nil {
				return err
			}
			return table.Print(a.App, all)
		})}
	f := cmd.Flags()
	f.StringVar(&q.State, "state", "", "list only jobs in this `STATE`: "+strings.Join(fleet.JobStates, ", "))
	f.StringVar(&q.User, "user", "", "list only jobs of this `USER` of the hosts")
	f.StringVar(&q.Host, "host", "", "list only jobs on this `HOST`")
	f.StringVar(&q.Cell, "cell", "", "list only jobs of this `CELL`")
	f.StringVarP(&q.Project, "project", "p", "", "list only jobs of this `PROJECT`")
	f.IntVar(&limit, "limit", 100, "maximum number of jobs; 0: all")
	app.Complete(cmd, "state", func() []string { return fleet.JobStates })
	return cmd
}

func (a jobCommands) show() *cobra.Command {
	return &cobra.Command{Use: "show ID", Short: "Show a job, and what its start took, phase by phase",
		Long: "Show a job or a worker, before or after its end, by its ID or that of its record of usage.",
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			j, err := c.Jobs.Get(ctx, args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(j)
			}
			return writeJob(a.Out, j)
		})}
}

// nameOf is what people call a job: by its batch system, or of a worker its node.
func nameOf(j fleet.Job) string {
	if j.Name != "" {
		return "worker " + j.Name
	}
	return j.Batch
}

// note is what matters most of a job.
func note(j fleet.Job) string {
	switch {
	case j.Record != nil:
		return j.Record.Ended
	case j.Silent:
		return "its host is silent"
	}
	return j.Why
}

// startText is how long the start of a job's VM has taken so far.
func startText(j fleet.Job) string {
	if n := len(j.Phases); n > 0 {
		return took(j.Phases[n-1].At + j.Phases[n-1].Milliseconds)
	}
	return "-"
}

func took(milliseconds float64) string {
	d := time.Duration(milliseconds * float64(time.Millisecond))
	switch {
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04")
}

// barWidth is how many columns the bars of a start have.
const barWidth = 40

func used(u api.Usage) string {
	if u.CPU == nil {
		return fmt.Sprintf("unknown CPU time in %.0f s", u.Wall)
	}
	return fmt.Sprintf("%.0f s of CPU in %.0f s", *u.CPU, u.Wall)
}

func writeJob(w io.Writer, j fleet.Job) error {
	var b strings.Builder
	line := func(what, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%-8s  %s\n", what, text)
		}
	}
	line(j.Kind, j.ID)
	line("state", j.State)
	line("note", note(j))
	line("job", nameOf(j))
	line("user", j.User)
	line("account", j.Account)
	line("project", j.Project)
	line("host", j.Host)
	line("cell", j.Cell)
	line("image", j.Image)
	line("size", fmt.Sprintf("%s, %v", farm.Count(j.Cores, "CPU"), farm.Bytes(j.Memory).Rounded()))
	line("asked", clock(j.Asked))
	if u := j.Record; u != nil {
		line("ended", clock(u.End))
		line("used", used(*u))
	}
	if len(j.Phases) > 0 {
		b.WriteString("\nstart\n")
	}
	end := 0.0
	for _, p := range j.Phases {
		end = max(end, p.At+p.Milliseconds)
	}
	for _, p := range j.Phases {
		from := int(p.At * barWidth / max(end, 1))
		n := max(int((p.At+p.Milliseconds)*barWidth/max(end, 1))-from, 1)
		fmt.Fprintf(&b, "  %-8s %10s  %s%s\n", p.Name, took(p.Milliseconds), strings.Repeat(" ", from),
			strings.Repeat("#", n))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
