package usage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
)

// period are two times of flags.
type period struct{ from, to string }

func (p *period) flags(cmd *cobra.Command, what string) {
	cmd.Flags().StringVar(&p.from, "from", "", "records that "+what+" at this `TIME` or later: 2026-10-20 (UTC), "+
		"2026-10-20T18:00:00Z, or how long ago, as 3d")
	cmd.Flags().StringVar(&p.to, "to", "", "records that "+what+" before this `TIME`")
}

// times reads them; zero: not given.
func (p *period) times(now time.Time) (from, to time.Time, err error) {
	if from, err = timeOf("from", p.from, now); err == nil {
		to, err = timeOf("to", p.to, now)
	}
	return from, to, err
}

func timeOf(flag, text string, now time.Time) (time.Time, error) {
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day, nil
	}
	at, err := app.ParseAgo(flag, text, now)
	if err != nil || at == nil {
		return time.Time{}, err
	}
	return *at, nil
}

// outsideSum are the records of a host that count for nobody for one reason.
type outsideSum struct {
	Host      string    `json:"host"`
	Why       string    `json:"why"` // a word
	Records   int       `json:"records"`
	CoreHours float64   `json:"core_hours"` // that they would be
	Last      time.Time `json:"last"`       // the latest end that one has
	Example   string    `json:"example"`    // why, of one of them
}

// outsideFound is the command's answer.
type outsideFound struct {
	Hosts   []outsideSum `json:"hosts"`
	Records []api.Usage  `json:"records,omitempty"`
}

func (f *outsideFound) add(u api.Usage) {
	word, _, _ := strings.Cut(u.Outside, ":")
	i := slices.IndexFunc(f.Hosts, func(s outsideSum) bool { return s.Host == u.Host && s.Why == word })
	if i < 0 {
		i, f.Hosts = len(f.Hosts), append(f.Hosts, outsideSum{Host: u.Host, Why: word})
	}
	s := &f.Hosts[i]
	s.Records++
	s.CoreHours += float64(u.Cores) * u.Wall / 3600
	if u.End.After(s.Last) {
		s.Last = u.End
	}
	s.Example = u.Outside
}

func (c commands) check() *cobra.Command {
	var q fleet.OutsideQuery
	var p period
	var all bool
	cmd := &cobra.Command{Use: "check", Short: "Print records that count for nobody", Args: cobra.NoArgs,
		Long: `Print which records of hosts count for nobody, by host and reason: the host cannot have run what they
say, as far as the server knows, or they were withdrawn. They are in no sum and no export. See
"What a host can charge" in docs/guide/accounting.md for the reasons. You see those of cells in which
you have a role, or all if you can read the whole farm. With --records each record is printed.`,
		Example: "  grange usage check\n  grange usage check --host wn-17 --from 2026-10-20 --records",
		RunE: c.OnServer(func(ctx context.Context, server *fleet.Client, _ []string) (err error) {
			if q.From, q.To, err = p.times(time.Now()); err != nil {
				return err
			}
			found := outsideFound{Hosts: []outsideSum{}}
			if err := server.Usage.EachOutside(ctx, q, func(u api.Usage) error {
				found.add(u)
				if all {
					found.Records = append(found.Records, u)
				}
				return nil
			}); err != nil {
				return err
			}
			slices.SortFunc(found.Hosts, func(a, b outsideSum) int {
				return strings.Compare(a.Host+"\x00"+a.Why, b.Host+"\x00"+b.Why)
			})
			if c.JSON {
				return c.PrintJSON(found)
			}
			return c.printOutside(found, all)
		})}
	cmd.Flags().StringVar(&q.Host, "host", "", "only the records of this `HOST`")
	cmd.Flags().StringVar(&q.Why, "why", "", "only the records with this `REASON`, as cores or place")
	cmd.Flags().BoolVar(&all, "records", false, "print each record")
	p.flags(cmd, "ended")
	return cmd
}

func (c commands) printOutside(found outsideFound, all bool) error {
	if len(found.Hosts) == 0 {
		_, err := fmt.Fprintln(c.Out, "all records count")
		return err
	}
	w := output.NewColumns(c.Out)
	if all {
		fmt.Fprintf(w, "RECORD\tHOST\tKIND\tEND\tCORES\tHOURS\tWHY\n")
		for _, u := range found.Records {
			w.Row(u.ID, u.Host, u.Kind, u.End.UTC().Format(time.RFC3339), u.Cores, fmt.Sprintf("%.2f", u.Wall/3600),
				farm.Printable(u.Outside))
		}
		return w.Flush()
	}
	fmt.Fprintf(w, "HOST\tREASON\tRECORDS\tCORE HOURS\tLAST END\tFOR EXAMPLE\n")
	for _, s := range found.Hosts {
		_, text, _ := strings.Cut(s.Example, ": ")
		w.Row(s.Host, s.Why, s.Records, fmt.Sprintf("%.2f", s.CoreHours), s.Last.UTC().Format(time.RFC3339),
			farm.Printable(text))
	}
	return w.Flush()
}

func (c commands) withdraw() *cobra.Command {
	var r fleet.UsageWithdrawal
	var p period
	cmd := &cobra.Command{Use: "withdraw HOST", Short: "Take records of a host back", Args: cobra.ExactArgs(1),
		Long: `Take records of a host back, as of one that was lost: those that ended in a period, or with --came
those that the server took in it. They count for nobody from then on, and do not come back when the
host brings them again; "grange usage check --why withdrawn" shows them. Fence or forget the host
first: it could bring others. Records of closed months are taken back too, and the command says how
many: export these months again. Records of jobs without a VM stay, which are of batch systems. The
host may be forgotten already. For administrators; the audit log has it.`,
		Example: "  grange usage withdraw wn-17 --from 2026-10-20 --to 2026-10-23 --dry-run\n" +
			"  grange usage withdraw wn-17 --came --from 3d",
		RunE: c.OnServer(func(ctx context.Context, server *fleet.Client, args []string) (err error) {
			r.Host = args[0]
			now := time.Now()
			if r.From, r.To, err = p.times(now); err != nil {
				return err
			}
			if r.From.IsZero() {
				return app.Usage("name the beginning of the period, as 2026-10-20", "no --from")
			}
			if r.To.IsZero() {
				r.To = now.Add(2 * time.Hour) // a host whose clock is ahead has records that end later
			}
			out, err := server.Usage.Withdraw(ctx, r)
			if err != nil {
				return err
			}
			if c.JSON {
				return c.PrintJSON(out)
			}
			return c.printWithdrawn(out)
		})}
	cmd.Flags().BoolVar(&r.Came, "came", false, "the period is when the server took the records, not when they ended")
	cmd.Flags().BoolVar(&r.DryRun, "dry-run", false, "only count them")
	p.flags(cmd, "ended")
	return cmd
}

func (c commands) printWithdrawn(w fleet.UsageWithdrawn) error {
	word := "withdrawn"
	if w.DryRun {
		word = "would be withdrawn"
	}
	fmt.Fprintf(c.Out, "%s: %s of %.2f core hours\n", word, farm.Count(w.Records, "record"), w.CoreHours)
	if w.Closed > 0 {
		fmt.Fprintf(c.Out, "%d of them are of closed months.\nTo do: export these months again.\n", w.Closed)
	}
	return nil
}
