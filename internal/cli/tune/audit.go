package tune

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
	"github.com/grange-project/grange/internal/tuning/report"
	"github.com/grange-project/grange/internal/version"
)

var exitOf = map[tuning.Severity]int{tuning.Advice: app.ExitAdvice, tuning.Warning: app.ExitWarning,
	tuning.Fault: app.ExitFault}

// auditFlags are what `grange tune audit` is asked.
type auditFlags struct {
	choice
	failOn, format, output string
}

var (
	failOns = []string{"fault", "warning", "advice", "never"}
	formats = []string{"table", "json", "sarif", "html", "journal", "prometheus", "nagios"}
)

func (a tuneCommands) tuneAudit() *cobra.Command {
	var f auditFlags
	cmd := &cobra.Command{
		Use: "audit", Short: "Audit the configuration of a host for virtual machines",
		Args: cobra.NoArgs,
		Long: `Audit how this host, or a recorded one, is configured for virtual machines. Nothing is
changed. Each finding gives the current state, the wanted state, the cost and the source of
that figure. Costs are not additive, and no sum is printed.

Exit status 0: there are no findings at or above --fail-on. Otherwise, by the worst finding:
3 (advice), 4 (warning) or 5 (fault). 1 and 2: the audit was not made. With --format nagios
it is that of a plug-in: 0, 1 (there are warnings), 2 (faults) or 3 (the audit was not made).`,
		Example: "  grange tune audit\n  grange tune audit --from node17.tar --profile generic-service\n" +
			"  grange tune audit -o node17.html --fail-on never",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.settle(a.JSON, cmd.Flags().Changed("format")); err != nil {
				return err
			}
			if f.format == "nagios" {
				return a.plugIn(cmd.Context(), f, cmd.Flags().Changed("fail-on"))
			}
			return a.audit(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	app.FromFlag(cmd, &f.from)
	f.choice.flags(cmd, "check only this `RULE`", "skip this `RULE`")
	flags.StringVar(&f.failOn, "fail-on", "warning",
		"lowest severity that changes the exit status: fault, warning, advice or never")
	flags.StringVar(&f.format, "format", "",
		"table, json, sarif, html; journal, which prints a line per finding with its priority for systemd; "+
			"prometheus, for the textfile collector of node_exporter; or nagios, as a plug-in prints "+
			"(default: from the extension of the -o file, else table)")
	flags.StringVarP(&f.output, "output", "o", "", "write the report to `FILE`, and only a summary to standard output")
	app.Complete(cmd, "fail-on", func() []string { return failOns })
	app.Complete(cmd, "format", func() []string { return formats })
	return cmd
}

func (a tuneCommands) audit(ctx context.Context, f auditFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	r, about, notes, err := auditOf(ctx, f)
	if err != nil {
		return err
	}
	tellNotes(a.Err, notes)
	if err := a.writeAudit(f, r, about); err != nil {
		return err
	}
	return auditStatus(r, f.failOn)
}

// plugIn is audit as monitors call it: they show standard output, and go by the exit status.
func (a tuneCommands) plugIn(ctx context.Context, f auditFlags, failOn bool) error {
	if failOn {
		return app.Usage("leave --fail-on out: a plug-in tells warnings and faults by its exit status",
			"--format nagios and --fail-on")
	}
	err := f.check()
	var r tuning.Report
	if err == nil {
		r, _, _, err = auditOf(ctx, f)
	}
	if err == nil {
		err = a.writeAudit(f, r, report.About{})
	}
	if err != nil {
		return errors.Join(report.NagiosFailed(a.Out, err), app.ExitError{Status: report.NagiosUnknown})
	}
	if status := report.NagiosStatus(r); status != 0 {
		return app.ExitError{Status: status}
	}
	return nil
}

// settle chooses the format where --format does not.
func (f *auditFlags) settle(json, given bool) error {
	switch {
	case json && given && f.format != "json":
		return app.Usage("leave one of them out", "--json and --format %s", f.format)
	case json:
		f.format = "json"
	case !given:
		f.format = formatOf(f.output)
	}
	return nil
}

// formatOf is the format that a file's name tells.
func formatOf(file string) string {
	name := strings.ToLower(file)
	switch {
	case strings.HasSuffix(name, ".html"), strings.HasSuffix(name, ".htm"):
		return "html"
	case strings.HasSuffix(name, ".sarif"), strings.HasSuffix(name, ".sarif.json"):
		return "sarif"
	case strings.HasSuffix(name, ".json"):
		return "json"
	case strings.HasSuffix(name, ".prom"):
		return "prometheus"
	}
	return "table"
}

func (f auditFlags) check() error {
	for _, c := range []struct {
		flag, value string
		known       []string
	}{{"fail-on", f.failOn, failOns}, {"format", f.format, formats}} {
		if !slices.Contains(c.known, c.value) {
			return app.UnknownWord(c.flag, c.value, c.known)
		}
	}
	return nil
}

// auditOf reads the host and asks the rules.
func auditOf(ctx context.Context, f auditFlags) (tuning.Report, report.About, []string, error) {
	h, tree, err := app.HostFacts(ctx, f.from)
	if err != nil {
		return tuning.Report{}, report.About{}, nil, err
	}
	defer tree.Close()
	r, notes, err := f.judge(h)
	about := report.About{Source: tree.Name, Date: time.Now().UTC().Truncate(time.Second), Version: version.String(),
		Chosen: f.words()}
	return r, about, notes, err
}

// maxProfile bounds a profile's file.
const maxProfile = 1 << 20

// profileOf is a built-in profile, or one in a file: a name with a slash or a dot is a file.
func profileOf(name string) (tuning.Profile, error) {
	if !strings.ContainsAny(name, "/.") {
		p, _, err := tuning.ProfileByName(name)
		return p, err
	}
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return tuning.Profile{}, &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoProfile,
			Message: fmt.Sprintf("no file %s", name),
			Hint:    "`grange tune profiles` lists the built-in ones", Err: err}
	}
	if err != nil {
		return tuning.Profile{}, fmt.Errorf("read profile: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxProfile+1))
	if err != nil {
		return tuning.Profile{}, fmt.Errorf("read profile: %w", err)
	}
	if len(text) > maxProfile {
		return tuning.Profile{}, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadProfile,
			Message: name + " is larger than a profile can be",
			Hint:    "`grange tune profiles NAME` prints one to start from"}
	}
	return tuning.ParseProfile(text, name)
}

func (a tuneCommands) writeAudit(f auditFlags, r tuning.Report, about report.About) error {
	if f.output == "" {
		return auditTo(output.RawOf(a.Out), f.format, r, about, style(a.App))
	}
	err := app.WriteFile(f.output, func(w io.Writer) error { return auditTo(w, f.format, r, about, report.Style{}) })
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(a.Out, "%s: %s\n", f.output, report.Summary(r)); err != nil || !r.Sparse() {
		return err
	}
	_, err = fmt.Fprintln(a.Err, "note: "+tuning.SparseNote)
	return err
}

func auditTo(w io.Writer, format string, r tuning.Report, about report.About, style report.Style) error {
	switch format {
	case "json":
		return report.JSON(w, r, about)
	case "sarif":
		return report.SARIF(w, r, about)
	case "html":
		return report.HTML(w, r, about)
	case "journal":
		return report.Lines(w, r)
	case "prometheus":
		return report.Prometheus(w, r, about)
	case "nagios":
		return report.Nagios(w, r)
	}
	return report.Table(w, r, about, style)
}

// style is what standard output can show: colours on a terminal only, and never where the reader said not to
// (no-color.org).
func style(a *app.App) report.Style {
	out, ok := output.FileOf(a.Out)
	if !ok || !term.IsTerminal(int(out.Fd())) {
		return report.Style{}
	}
	width, _, err := term.GetSize(int(out.Fd()))
	if err != nil {
		width = 0
	}
	return report.Style{Width: width, Color: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func auditStatus(r tuning.Report, failOn string) error {
	for severity := tuning.Advice; severity <= tuning.Fault; severity++ {
		if severity.String() == failOn && r.Worst() >= severity {
			return app.ExitError{Status: exitOf[r.Worst()]}
		}
	}
	return nil
}
