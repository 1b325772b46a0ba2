package cli

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

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
	"github.com/grange-project/grange/internal/tuning/report"
)

// Exit statuses of `grange tune audit` where something at or above --fail-on was found: the worst decides. They are none of
// exitFailed and exitUsage, so that a script can tell a badly tuned host from an audit that did not happen.
const (
	exitAdvice  = 3
	exitWarning = 4
	exitFault   = 5
)

var exitOf = map[tuning.Severity]int{tuning.Advice: exitAdvice, tuning.Warning: exitWarning, tuning.Fault: exitFault}

// auditFlags are what `grange tune audit` is asked.
type auditFlags struct {
	from, profile, role, failOn, format, output string
	only, skip                                  []string
}

var (
	failOns = []string{"fault", "warning", "advice", "never"}
	formats = []string{"table", "json", "sarif", "html"}
	roles   = []string{string(tuning.Compute), string(tuning.Service), string(tuning.Guest)}
)

func (a *app) tuneAudit() *cobra.Command {
	var f auditFlags
	cmd := &cobra.Command{
		Use: "audit", Short: "Judge how a host is set up for virtual machines, with the evidence for each finding", Args: cobra.NoArgs,
		Long: "Judge how this host, or a recorded one, is set up for virtual machines. Nothing is changed. Every finding names what is, what is " +
			"wanted, what it costs and who measured that. Costs are not additive and no sum is given.\n\n" +
			"Exit status: 0 when nothing at or above --fail-on was found; otherwise by the worst finding 3 (advice), 4 (warning) or 5 (fault). " +
			"1 and 2 mean that there was no audit.",
		Example: "  grange tune audit\n  grange tune audit --from node17.tar --profile generic-service\n" +
			"  grange tune audit -o node17.html --fail-on never",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.settle(a.json, cmd.Flags().Changed("format")); err != nil {
				return err
			}
			return a.audit(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	fromFlag(cmd, &f.from)
	flags.StringVar(&f.profile, "profile", "", "what is wanted: `NAME` of a built-in profile or a TOML file (default: the one that fits the processor)")
	flags.StringVar(&f.role, "role", "", "what the host is for: compute, service or guest (default: the profile's; guest in a VM that runs none itself, else compute)")
	flags.StringSliceVar(&f.only, "rule", nil, "ask only this `RULE`; may be repeated, or a list: a,b")
	flags.StringSliceVar(&f.skip, "skip", nil, "do not ask this `RULE`; may be repeated, or a list: a,b")
	flags.StringVar(&f.failOn, "fail-on", "warning", "lowest severity that makes the exit status other than 0: fault, warning, advice or never")
	flags.StringVar(&f.format, "format", "", "table, json, sarif or html (default: by the ending of the file of -o, else table)")
	flags.StringVarP(&f.output, "output", "o", "", "write to `FILE`, and only the summary here")
	complete(cmd, "rule", ruleIDs)
	complete(cmd, "skip", ruleIDs)
	complete(cmd, "profile", profileNames)
	complete(cmd, "role", func() []string { return roles })
	complete(cmd, "fail-on", func() []string { return failOns })
	complete(cmd, "format", func() []string { return formats })
	return cmd
}

func (a *app) audit(ctx context.Context, f auditFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	r, about, err := auditOf(ctx, f)
	if err != nil {
		return err
	}
	if err := a.sayNotAsked(f, r); err != nil {
		return err
	}
	if err := a.writeAudit(f, r, about); err != nil {
		return err
	}
	return auditStatus(r, f.failOn)
}

// settle chooses the format where --format does not.
func (f *auditFlags) settle(json, given bool) error {
	switch {
	case json && given && f.format != "json":
		return usage("leave one of them out", "--json and --format %s", f.format)
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
	}
	return "table"
}

// chosen are the flags that chose host, wishes and rules, for the command that goes on from here.
func (f auditFlags) chosen() string {
	text := ""
	for _, flag := range []struct{ name, value string }{{"from", f.from}, {"profile", f.profile}, {"role", f.role},
		{"rule", strings.Join(f.only, ",")}, {"skip", strings.Join(f.skip, ",")}} {
		if flag.value != "" {
			text += " --" + flag.name + " " + tuning.ShellWord(flag.value)
		}
	}
	return text
}

// sayNotAsked tells which rules named by --rule were not asked. That nothing was found by no rule is no good news.
func (a *app) sayNotAsked(f auditFlags, r tuning.Report) error {
	var why []string
	for _, s := range r.Skipped {
		if slices.Contains(f.only, s.Rule.ID) {
			why = append(why, s.Rule.ID+": "+s.Reason)
		}
	}
	if r.Applied == 0 {
		return usage("`grange tune explain RULE` tells for which roles a rule holds", "no rule is left to ask; %s", strings.Join(why, "; "))
	}
	for _, w := range why {
		fmt.Fprintf(a.err, "not asked: %s\n", w)
	}
	return nil
}

func (f auditFlags) check() error {
	for _, c := range []struct {
		flag, value string
		known       []string
	}{{"role", f.role, roles}, {"fail-on", f.failOn, failOns}, {"format", f.format, formats}} {
		chosen := c.value == "" && c.flag == "role" // by the host or the profile
		if !chosen && !slices.Contains(c.known, c.value) {
			return usage("write "+strings.Join(c.known, ", "), "--%s %q is none that there is", c.flag, c.value)
		}
	}
	return nil
}

// auditOf reads the host and asks the rules.
func auditOf(ctx context.Context, f auditFlags) (tuning.Report, report.About, error) {
	h, tree, err := hostFacts(ctx, f.from)
	if err != nil {
		return tuning.Report{}, report.About{}, err
	}
	defer tree.Close()
	p, role, err := wantedOf(h, f.profile, tuning.Role(f.role))
	if err != nil {
		return tuning.Report{}, report.About{}, err
	}
	r, err := tuning.Audit(h, p, role, tuning.Options{Only: f.only, Skip: f.skip})
	about := report.About{Source: tree.Name, Date: time.Now().UTC().Truncate(time.Second), Version: Version(), Chosen: f.chosen()}
	return r, about, err
}

// wantedOf is the profile and the role for a host: those asked for, or what fits.
func wantedOf(h farm.Host, profile string, role tuning.Role) (tuning.Profile, tuning.Role, error) {
	if profile == "" {
		if role == "" {
			role = tuning.DefaultRole(h)
		}
		return tuning.Choose(h, role), role, nil
	}
	p, err := profileOf(profile)
	if role == "" {
		role = p.Role
	}
	return p, role, err
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
		return tuning.Profile{}, &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoProfile, Message: fmt.Sprintf("there is no file %s", name),
			Hint: "`grange tune profiles` lists the built-in ones", Err: err}
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
		return tuning.Profile{}, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadProfile, Message: name + " is larger than a profile can be",
			Hint: "`grange tune profiles NAME` prints one to start from"}
	}
	return tuning.ParseProfile(text, name)
}

func (a *app) writeAudit(f auditFlags, r tuning.Report, about report.About) error {
	if f.output == "" {
		return auditTo(a.out, f.format, r, about, a.style())
	}
	err := writeFile(f.output, func(w io.Writer) error { return auditTo(w, f.format, r, about, report.Style{}) })
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(a.out, "%s: %s\n", f.output, report.Summary(r)); err != nil || !r.Sparse() {
		return err
	}
	_, err = fmt.Fprintln(a.err, "note: "+tuning.SparseNote)
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
	}
	return report.Table(w, r, about, style)
}

// style is what standard output can show: colours on a terminal only, and never where the reader said not to (no-color.org).
func (a *app) style() report.Style {
	out, ok := fileOf(a.out)
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
			return exitError{exitOf[r.Worst()]}
		}
	}
	return nil
}
