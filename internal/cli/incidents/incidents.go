// Package incidents has the commands of incidents: shared records of problems.
package incidents

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
)

// commands are the commands of incidents.
type commands struct{ *app.App }

// Commands are the commands of incidents.
func Commands(a *app.App) []*cobra.Command {
	c := commands{a}
	incident := &cobra.Command{Use: "incident", Short: "Keep a shared record of each problem",
		Long: `An incident is the record of one problem, which all write whom it concerns: users, those who
operate hosts, administrators. It has hosts, VMs, findings of the audit, projects and cells
that it concerns, links to other incidents, and entries. Entries are added; nobody changes or
deletes one.

Members of a project read and write incidents that concern the project or its VMs; those
who operate a cell, incidents that concern the cell, its hosts or VMs there. An incident is
closed and reopened by its opener and by operators.`}
	incident.AddCommand(c.list(), c.show(), c.open(), c.note(), c.link(), c.close(), c.reopen())
	return []*cobra.Command{incident}
}

func (a commands) list() *cobra.Command {
	var q fleet.IncidentQuery
	var state, since string
	var limit int
	table := app.Table[fleet.Incident]{None: "no incidents",
		Head: "ID\tSTATE\tSEVERITY\tTITLE\tCONCERNS\tOPENED BY\tUPDATED", Line: func(i fleet.Incident) []any {
			return []any{i.ID, i.State, i.Severity, i.Title, farm.Enumerate(words(i.Concerns)), i.OpenedBy,
				clock(i.Updated)}
		}}
	cmd := &cobra.Command{Use: "list", Short: "List incidents, newest first", Args: cobra.NoArgs,
		Long: `List incidents, newest first: open ones, or with --state closed or all. With --since, those
with an entry since then, as for a daily meeting.`,
		Example: "  grange incident list --since 1d --state all\n  grange incident list --host wn-0017",
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, _ []string) (err error) {
			if q.State, err = stateOf(state); err != nil {
				return err
			}
			if at, err := app.ParseAgo("since", since, time.Now()); err != nil {
				return err
			} else if at != nil {
				q.Since = *at
			}
			all, err := c.Incidents.List(ctx, q, limit)
			if err != nil {
				return err
			}
			return table.Print(a.App, all)
		})}
	cmd.Flags().StringVar(&state, "state", "open", "list incidents in this `STATE`: open, closed or all")
	cmd.Flags().StringVar(&q.Host, "host", "", "list only incidents that concern this `HOST`")
	cmd.Flags().StringVar(&q.VM, "vm", "", "list only incidents that concern this `VM`")
	cmd.Flags().StringVar(&q.Finding, "finding", "", "list only incidents that concern this `RULE` of the audit")
	cmd.Flags().StringVarP(&q.Project, "project", "p", "", "list only incidents of this `PROJECT` or its VMs")
	cmd.Flags().StringVar(&q.Cell, "cell", "", "list only incidents of this `CELL`, its hosts or VMs there")
	cmd.Flags().StringVar(&since, "since", "", "list only incidents with an entry since `TIME`: 1d, or 2027-01-31T18:00:00Z")
	cmd.Flags().IntVar(&limit, "limit", 100, "maximum number of incidents; 0: all")
	app.Complete(cmd, "state", func() []string { return []string{"open", "closed", "all"} })
	a.completeConcerns(cmd)
	return cmd
}

func stateOf(word string) (string, error) {
	switch word {
	case "all":
		return "", nil
	case "open", "closed":
		return word, nil
	}
	return "", app.UnknownWord("state", word, []string{"open", "closed", "all"})
}

func (a commands) show() *cobra.Command {
	return &cobra.Command{Use: "show ID", Short: "Show an incident with all its entries", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.complete(""),
		RunE: a.onIncident(func(ctx context.Context, c *fleet.Client, id int64, _ string) (fleet.Incident, error) {
			return c.Incidents.Get(ctx, id)
		})}
}

func (a commands) open() *cobra.Command {
	var r fleet.IncidentRequest
	var began string
	cmd := &cobra.Command{Use: "open TITLE", Short: "Open an incident", Args: cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		Long: `Open an incident and name what it concerns. You need a role for each thing: member of the
project of a VM, operator of the cell of a host. Without any, or with findings alone, it
concerns the whole farm.`,
		Example: "  grange incident open 'jobs are slow since the reboot' --vm atlas/web-1 --severity major\n" +
			"  grange incident open 'swap is full' --host wn-0017 --finding host-swap-in-use --began 3h",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			r.Title = args[0]
			if r.Began, err = app.ParseAgo("began", began, time.Now()); err != nil {
				return err
			}
			if r.Text, err = textOf(cmd, r.Text); err != nil {
				return err
			}
			c, err := a.Fleet()
			if err != nil {
				return err
			}
			i, err := again(func(key string) (fleet.Incident, error) { return c.Incidents.Open(cmd.Context(), r, key) })
			if err != nil {
				return err
			}
			return a.print(i)
		}}
	cmd.Flags().StringVar(&r.Text, "note", "", "`TEXT` with what is known; -: standard input")
	cmd.Flags().StringVar(&began, "began", "", "`TIME` at which the problem began, or how long ago: 3h (default: now)")
	cmd.Flags().Int64SliceVar(&r.Incidents, "incident", nil, "link it to these `INCIDENTS`")
	a.severityFlag(cmd, &r.Severity, "how much harm it does: `SEVERITY` minor, major or critical (default: minor)")
	a.concernFlags(cmd, &r.Concerns)
	return cmd
}

func (a commands) note() *cobra.Command {
	var n fleet.IncidentNote
	cmd := &cobra.Command{Use: "note ID TEXT...", Short: "Add a note to an incident", Args: cobra.MinimumNArgs(2),
		ValidArgsFunction: a.complete(""),
		Long: `Add a note to an incident, open or closed. Nobody can change or delete it. With - as TEXT, the
note is read from standard input. --severity needs the right to close the incident.`,
		Example: "  grange incident note 17 swap is full on wn-0017, jobs of atlas are slow\n" +
			"  grange incident note 17 - <minutes.txt",
		RunE: a.onIncident(func(ctx context.Context, c *fleet.Client, id int64, text string) (fleet.Incident, error) {
			n.Text = text
			return again(func(key string) (fleet.Incident, error) { return c.Incidents.Note(ctx, id, n, key) })
		})}
	a.severityFlag(cmd, &n.Severity, "give the incident this `SEVERITY`: minor, major or critical")
	return cmd
}

func (a commands) link() *cobra.Command {
	var l fleet.IncidentLink
	cmd := &cobra.Command{Use: "link ID [TEXT...]", Short: "Add what an incident concerns, or link it to others",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.complete(""),
		Long: `Add hosts, VMs, findings, projects and cells that an incident concerns, too, or link it to
other incidents, which then have a link back. Things that it concerns already are passed over.`,
		Example: "  grange incident link 17 --host wn-0018 --incident 12 the same switch",
		RunE: a.onIncident(func(ctx context.Context, c *fleet.Client, id int64, text string) (fleet.Incident, error) {
			l.Text = text
			return c.Incidents.Link(ctx, id, l)
		})}
	cmd.Flags().Int64SliceVar(&l.Incidents, "incident", nil, "link it to these `INCIDENTS`")
	a.concernFlags(cmd, &l.Concerns)
	return cmd
}

func (a commands) close() *cobra.Command {
	var ended string
	cmd := &cobra.Command{Use: "close ID [TEXT...]", Short: "Close an incident", Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: a.complete("open"),
		Example:           "  grange incident close 17 more memory since noon --ended 2h",
		RunE: a.onIncident(func(ctx context.Context, c *fleet.Client, id int64, text string) (fleet.Incident, error) {
			at, err := app.ParseAgo("ended", ended, time.Now())
			if err != nil {
				return fleet.Incident{}, err
			}
			return c.Incidents.Close(ctx, id, fleet.IncidentEnd{Text: text, Ended: at}, 0)
		})}
	cmd.Flags().StringVar(&ended, "ended", "", "`TIME` at which the problem was over, or how long ago: 2h (default: now)")
	return cmd
}

func (a commands) reopen() *cobra.Command {
	return &cobra.Command{Use: "reopen ID [TEXT...]", Short: "Open a closed incident again",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.complete("closed"),
		RunE: a.onIncident(func(ctx context.Context, c *fleet.Client, id int64, text string) (fleet.Incident, error) {
			return c.Incidents.Reopen(ctx, id, text)
		})}
}

// onIncident is what a command does with an incident, named by its first argument, and a text, of the others. It prints
// what came of it.
func (a commands) onIncident(do func(context.Context, *fleet.Client, int64, string) (fleet.Incident,
	error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		id, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil || id <= 0 {
			return app.Usage("`grange incident list` prints the IDs", "%q names no incident", args[0])
		}
		text, err := textOf(cmd, strings.Join(args[1:], " "))
		if err != nil {
			return err
		}
		c, err := a.Fleet()
		if err != nil {
			return err
		}
		i, err := do(cmd.Context(), c, id, text)
		if err != nil {
			return err
		}
		return a.print(i)
	}
}

// mostText bounds what is read of standard input; the server bounds a text in letters.
const mostText = 1 << 16

// textOf is a text, or for "-" what standard input has.
func textOf(cmd *cobra.Command, text string) (string, error) {
	if text != "-" {
		return text, nil
	}
	all, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), mostText))
	return string(all), err
}

// again asks once more where the connection broke, under the same key: the server does nothing twice.
func again(do func(key string) (fleet.Incident, error)) (i fleet.Incident, err error) {
	key := api.NewID()
	for range 3 {
		if i, err = do(key); err == nil || app.CodeOf(err) != "no-agent" {
			break
		}
	}
	return i, err
}

// print prints an incident with its entries.
func (a commands) print(i fleet.Incident) error {
	if a.JSON {
		return a.PrintJSON(i)
	}
	return write(a.Out, i)
}

func write(w io.Writer, i fleet.Incident) error {
	var b strings.Builder
	fmt.Fprintf(&b, "incident %d, %s, %s: %s\n", i.ID, i.State, i.Severity, i.Title)
	line := func(what, text string) {
		if text != "" {
			fmt.Fprintf(&b, "  %-9s %s\n", what, text)
		}
	}
	line("began", clock(i.Began))
	if i.Ended != nil {
		line("ended", clock(*i.Ended))
	}
	line("concerns", strings.Join(words(i.Concerns), ", "))
	if i.Hidden > 0 {
		line("", farm.Count(i.Hidden, "thing")+" more that you may not see")
	}
	for _, l := range i.Incidents {
		line("linked", linkText(l))
	}
	for _, e := range i.Entries {
		fmt.Fprintf(&b, "\n%s  %s %s\n", clock(e.Time), e.Who, entryText(e))
		for line := range strings.SplitSeq(e.Text, "\n") {
			if line != "" {
				fmt.Fprintf(&b, "  %s\n", line)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func linkText(l fleet.LinkedIncident) string {
	if l.Title == "" {
		return fmt.Sprintf("%d, which you may not read", l.ID)
	}
	return fmt.Sprintf("%d, %s: %s", l.ID, l.State, l.Title)
}

// entryText is what an entry did.
func entryText(e fleet.IncidentEntry) string {
	did := map[string]string{"opened": "opened it", "note": "wrote", "closed": "closed it", "reopened": "reopened it",
		"linked": "linked it"}
	deeds := []string{cmp.Or(did[e.Kind], e.Kind)} // of a newer server
	about := words(e.Concerns)
	switch {
	case e.Kind == "linked" && len(about) > 0:
		deeds[0] = "added " + strings.Join(about, ", ")
	case len(about) > 0:
		deeds = append(deeds, "about "+strings.Join(about, ", "))
	case e.Kind == "linked" && len(e.Incidents) > 0:
		deeds = nil
	}
	if len(e.Incidents) > 0 {
		ids := app.NamesOf(e.Incidents, func(id int64) string { return strconv.FormatInt(id, 10) })
		deeds = append(deeds, "linked it to incident "+strings.Join(ids, ", "))
	}
	if e.Severity != "" {
		deeds = append(deeds, "severity "+e.Severity)
	}
	if e.Ended != nil {
		deeds = append(deeds, "over at "+clock(*e.Ended))
	}
	return strings.Join(deeds, "; ")
}

// words are what an incident concerns, for people.
func words(c fleet.Concerns) (all []string) {
	for _, of := range []struct {
		kind  string
		names []string
	}{{"host", c.Hosts}, {"VM", c.VMs}, {"finding", c.Findings}, {"project", c.Projects}, {"cell", c.Cells}} {
		for _, name := range of.names {
			all = append(all, of.kind+" "+name)
		}
	}
	return all
}

func clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04") }
