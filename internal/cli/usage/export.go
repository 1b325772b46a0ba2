package usage

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/usage"
)

// formats are those of an export.
var formats = []string{"apel-grid", "apel-cloud", "auditor", "csv", "json"}

// order is an export.
type order struct {
	choice
	format, month, to string
	site              usage.Site
	mask              bool
}

func (c commands) export() *cobra.Command {
	var o order
	cmd := &cobra.Command{Use: "export", Short: "Export records of what VMs have used", Args: cobra.NoArgs,
		Long: `Export the records of a month. csv, json (one record a line) and auditor (one a line, as the
body of a POST to AUDITOR's /record) go to standard output, or to the file given with -o.
apel-grid (jobs and workers) and apel-cloud (intervals of cloud VMs) are messages to APEL, for
which -o names a directory that ssmsend takes them from: the path of messages in its
configuration, of type dirq. A month that is not closed may still change.`,
		Example: "  grange usage export --format csv --month 2026-10 -o october.csv\n" +
			"  grange usage export --format apel-grid --month 2026-10 --site EXAMPLE-T2 -o /var/spool/apel/outgoing",
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context(), o) }}
	o.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.format, "format", "csv", "`FORMAT`: apel-grid, apel-cloud, auditor, csv or json")
	f.StringVar(&o.month, "month", "", "`MONTH` of the records, as 2026-10 (default: the month before this one)")
	f.StringVarP(&o.to, "output", "o", "", "`FILE`, or of APEL the directory, to write to")
	f.StringVar(&o.site.Name, "site", "", "of APEL and AUDITOR: `NAME` of the site, as it is registered")
	f.StringVar(&o.site.Submit, "submit-host", "", "of apel-grid: `NAME` of the CE")
	f.StringVar(&o.site.Service, "service", "", "of apel-cloud: `NAME` of the cloud service")
	f.BoolVar(&o.mask, "mask", false, "name no person")
	app.Complete(cmd, "format", func() []string { return formats })
	return cmd
}

func (c commands) run(ctx context.Context, o order) error {
	if o.month == "" {
		now := time.Now().UTC()
		o.month = usage.MonthOf(time.Date(now.Year(), now.Month(), 0, 0, 0, 0, 0, time.UTC))
	}
	o.From, o.To = o.month, o.month
	each := func(do func(api.Usage) error) error {
		return c.each(ctx, o.choice, func(u api.Usage) error {
			if o.mask {
				u = usage.Masked(u)
			}
			return do(u)
		})
	}
	switch o.format {
	case "csv":
		return c.exportTo(o.to, func(w io.Writer) error {
			table, err := usage.NewCSV(w)
			if err == nil {
				err = each(table.Write)
			}
			if err != nil {
				return err
			}
			return table.Flush()
		})
	case "auditor":
		return c.exportTo(o.to, func(w io.Writer) error { return each(usage.NewAuditor(w, o.site.Name).Write) })
	case "json":
		return c.exportTo(o.to, func(w io.Writer) error {
			lines := json.NewEncoder(w)
			return each(func(u api.Usage) error { return lines.Encode(u) })
		})
	case "apel-grid", "apel-cloud":
		return c.messages(o, each)
	}
	return app.UnknownWord("format", o.format, formats)
}

// exportTo writes what has a format of its own.
func (c commands) exportTo(name string, do func(io.Writer) error) error {
	if c.JSON {
		return app.Usage("`--format json` prints records as JSON", "this export has a format of its own, and no --json")
	}
	if name == "" {
		return do(c.Out)
	}
	return app.WriteFile(name, do)
}

// exported is what an export to APEL has written.
type exported struct {
	Records  int `json:"records"`
	Messages int `json:"messages"`
	Unscored int `json:"records_without_score,omitempty"` // of jobs, which APEL refuses
	LeftOut  int `json:"records_left_out,omitempty"`      // of jobs whose CPU time is not known
}

// messages writes messages to APEL. All are made before the first is written: an export that fails leaves none.
func (c commands) messages(o order, each func(do func(api.Usage) error) error) error {
	if o.to == "" || o.site.Name == "" {
		return app.Usage("ssmsend takes messages from a directory, and APEL knows sites by their names",
			"%s needs -o DIRECTORY and --site NAME", o.format)
	}
	message := o.site.GridMessage
	if o.format == "apel-cloud" {
		message = o.site.CloudMessage
	}
	var texts []string
	var some []api.Usage
	flush := func() {
		if len(some) > 0 {
			texts, some = append(texts, message(some)), nil
		}
	}
	var done exported
	err := each(func(u api.Usage) error {
		if (u.Kind == api.UsageVM) != (o.format == "apel-cloud") {
			return nil
		}
		if o.format == "apel-grid" && !usage.TakenByAPEL(u) {
			done.LeftOut++
			return nil
		}
		done.Records++
		if o.format == "apel-grid" && !usage.ScoredForAPEL(u) {
			done.Unscored++
		}
		if some = append(some, u); len(some) == usage.PerMessage {
			flush()
		}
		return nil
	})
	if err != nil {
		return err
	}
	flush()
	for _, text := range texts {
		if err := enqueue(o.to, text); err != nil {
			return app.CannotWrite(o.to, err)
		}
	}
	done.Messages = len(texts)
	if c.JSON {
		return c.PrintJSON(done)
	}
	fmt.Fprintf(c.Out, "%d records in %d messages\n", done.Records, done.Messages)
	if done.Unscored > 0 {
		fmt.Fprintf(c.Out, "%d of them have no score in a unit of APEL, whose server refuses records of jobs without one.\n"+
			"To do: give scores in the farm file (`grange bench scores`), and export the month again.\n", done.Unscored)
	}
	if done.LeftOut > 0 {
		fmt.Fprintf(c.Out, "%d records are left out: their batch system has no CPU time of them, and APEL takes no record\n"+
			"without one.\nTo do: have the batch system measure it, as with `JobAcctGatherType` of slurm.conf.\n",
			done.LeftOut)
	}
	return nil
}

// enqueue puts a message into a directory of messages.
func enqueue(root, text string) error {
	dir, file := usage.QueueName(time.Now(), rand.Uint32())
	if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
		return err
	}
	path := filepath.Join(root, dir, file)
	if _, err := os.Lstat(path); err == nil { // in the same microsecond
		time.Sleep(time.Microsecond)
		return enqueue(root, text)
	}
	return atomicfile.Write(path, []byte(text), 0o644)
}
