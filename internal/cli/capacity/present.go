package capacity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/capacity"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/usage"
)

// present is what `grange capacity` says.
type present struct {
	From    time.Time         `json:"from"`
	To      time.Time         `json:"to"`
	Cells   []capacity.Cell   `json:"cells"`
	Pledges []capacity.Pledge `json:"pledges"`
}

const presentLong = `Tell where the CPU time of a month went, by cell, in hours of one CPU. INSTALLED is what its hosts have.
Of that, RESERVED is for the hosts themselves; CLOSED was free on hosts that took nothing new, for they were closed,
drained, silent or fenced; JOBS, VMS and NO VM were delivered to jobs in VMs, to cloud VMs, and to jobs
without a VM, as the accounts have them; HELD belongs to VMs that have no record yet; UNUSED was free, and
nobody came. The parts are INSTALLED together. Below 0, HELD says that VMs share CPUs, and UNUSED that the batch system
ran jobs on CPUs that grange keeps.

SEEN is the part of the time in which the server counted the cell: what was delivered in the rest is left out.
For those who may read the whole fleet and its usage. Pledges are those of projects in the farm file.`

func (c commands) presentCommand() *cobra.Command {
	var month string
	cmd := &cobra.Command{Use: "capacity", Short: "Tell where the CPU time of the farm went, and what it can carry",
		Long: presentLong, Args: cobra.NoArgs, Example: "  grange capacity\n  grange capacity --month 2026-10 --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := c.present(cmd.Context(), month, time.Now().UTC())
			if err != nil {
				return err
			}
			if c.JSON {
				return c.PrintJSON(p)
			}
			return p.print(c.App)
		}}
	cmd.Flags().StringVar(&month, "month", "", "`MONTH`, as 2026-10 (default: this one, up to now)")
	return cmd
}

// present asks the server: of which cells and pledges there are, what was seen of them, and for the records.
func (c commands) present(ctx context.Context, month string, now time.Time) (p present, err error) {
	this := usage.MonthOf(now)
	month = cmp.Or(month, this)
	next := usage.Next(month)
	if p.From, err = usage.ParseMonth(month); err != nil {
		return p, err
	}
	if p.To, err = usage.ParseMonth(next); err != nil {
		return p, err
	}
	if p.To.After(now) {
		p.To, next = now, month
	}
	if !p.From.Before(p.To) {
		return p, app.Usage("give this month or an earlier one", "%s has not begun", month)
	}
	server, err := c.Fleet()
	if err != nil {
		return p, err
	}
	seen, err := seenCells(ctx, server, now.Sub(p.From))
	if err != nil {
		return p, err
	}
	pledges, err := pledgesOf(ctx, server)
	if err != nil {
		return p, err
	}
	sum := capacity.NewPresent(p.From, p.To, seen, pledges)
	// A record counts in the month in which it ends.
	if err := server.Usage.Each(ctx, fleet.UsageQuery{From: month, To: next}, func(u api.Usage) error {
		sum.Add(u)
		return nil
	}); err != nil {
		return p, err
	}
	p.Cells, p.Pledges = sum.Result()
	return p, nil
}

func seenCells(ctx context.Context, server *fleet.Client, back time.Duration) (seen []capacity.Seen, err error) {
	cells, _, err := server.Cells.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, cell := range cells {
		prefix := "cells." + cell.Name + ".cpus."
		h, err := server.History(ctx, min(back+time.Minute, fleet.MaxHistory).Truncate(time.Second), prefix+"*")
		if problem := new(api.Problem); errors.As(err, &problem) && problem.Type == "grange:no-series" {
			continue // a cell without hosts
		}
		if err != nil {
			return nil, err
		}
		s := capacity.Seen{Cell: cell.Name, From: h.From, Step: time.Duration(h.Step * float64(time.Second))}
		to := map[string]*[]float64{"total": &s.Total, "reserved": &s.Reserved, "refused": &s.Refused, "free": &s.Free}
		for _, series := range h.Series {
			if values := to[strings.TrimPrefix(series.Name, prefix)]; values != nil {
				*values = numbers(series.Values)
			}
		}
		seen = append(seen, s)
	}
	return seen, nil
}

// numbers has NaN for what is not known.
func numbers(values []*float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = math.NaN()
		if v != nil {
			out[i] = *v
		}
	}
	return out
}

func pledgesOf(ctx context.Context, server *fleet.Client) (map[string]int, error) {
	projects, err := server.Projects(ctx)
	out := map[string]int{}
	for _, p := range projects {
		if p.Pledge > 0 {
			out[p.Name] = p.Pledge
		}
	}
	return out, err
}

func (p present) print(a *app.App) error {
	const minute = "2006-01-02 15:04"
	fmt.Fprintf(a.Out, "%s to %s UTC, hours of a CPU\n", p.From.Format(minute), p.To.Format(minute))
	w := output.NewColumns(a.Out)
	fmt.Fprintln(w, "CELL\tSEEN\tINSTALLED\tRESERVED\tCLOSED\tJOBS\tVMS\tNO VM\tHELD\tUNUSED")
	for _, c := range p.Cells {
		w.Row(c.Cell, percent(c.Hours, p.To.Sub(p.From).Hours()), hours(c.Installed), hours(c.Reserved),
			hours(c.Refused), hours(c.Delivered.Jobs), hours(c.Delivered.VMs), hours(c.Delivered.Metal),
			hours(c.Held), hours(c.Unused))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, c := range p.Cells {
		for _, s := range c.Scores {
			fmt.Fprintf(a.Out, "%s: %s %s hours in %s of what was delivered\n", c.Cell, hours(s.Score), s.Unit,
				percent(s.Hours, c.Delivered.Sum()))
		}
	}
	if len(p.Pledges) == 0 {
		return nil
	}
	fmt.Fprintln(a.Out)
	w = output.NewColumns(a.Out)
	fmt.Fprintln(w, "PROJECT\tPLEDGED CPUS\tPLEDGED\tDELIVERED\tOF THE PLEDGE")
	for _, l := range p.Pledges {
		w.Row(l.Project, l.CPUs, hours(l.Pledged), hours(l.Delivered.Sum()), percent(l.Delivered.Sum(), l.Seen))
	}
	return w.Flush()
}

func hours(h float64) string { return fmt.Sprintf("%.0f", h) }

func percent(part, of float64) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*part/of)
}
