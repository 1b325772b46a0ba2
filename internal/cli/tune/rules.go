package tune

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/tuning"
	"github.com/grange-project/grange/internal/tuning/report"
)

func (a tuneCommands) tuneRules() *cobra.Command {
	return &cobra.Command{
		Use: "rules", Short: "List the rules of the audit", Args: cobra.NoArgs,
		Long: `List the rules of the audit. The severity of a rule is the highest that its findings can
have.`,
		RunE: func(*cobra.Command, []string) error {
			if !a.JSON {
				return report.Rules(output.RawOf(a.Out), tuning.Rules(), style(a.App))
			}
			list := []report.Rule{}
			for _, r := range tuning.Rules() {
				list = append(list, report.RuleOf(r))
			}
			return a.PrintJSON(list)
		},
	}
}

func (a tuneCommands) tuneExplain() *cobra.Command {
	return &cobra.Command{
		Use: "explain RULE", Short: "Explain a rule: reason, cost with its source, fix, risk, undo",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: app.CompleteFirst(ruleIDs),
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := tuning.RuleByID(args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(report.RuleOf(r))
			}
			return report.Explain(output.RawOf(a.Out), r, style(a.App))
		},
	}
}

func (a tuneCommands) tuneProfiles() *cobra.Command {
	return &cobra.Command{
		Use: "profiles [NAME]", Short: "List the built-in profiles, or print one as TOML",
		Args: cobra.MaximumNArgs(1),
		Long: "List the built-in profiles, or print one as TOML. An edited copy can be given to --profile.",
		Example: "  grange tune profiles generic-compute >site.toml\n  grange tune audit --profile " +
			"./site.toml",
		ValidArgsFunction: app.CompleteFirst(profileNames),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				return a.showProfile(args[0])
			}
			if !a.JSON {
				return report.Profiles(a.Out, tuning.Profiles())
			}
			list := []report.Profile{}
			for _, p := range tuning.Profiles() {
				list = append(list, report.ProfileOf(p))
			}
			return a.PrintJSON(list)
		},
	}
}

func (a tuneCommands) showProfile(name string) error {
	p, text, err := tuning.ProfileByName(name)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(report.ProfileOf(p))
	}
	_, err = fmt.Fprint(a.Out, text)
	return err
}
