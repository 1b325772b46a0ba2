// Package tune has the commands of a host's tuning: audit, rules, plans, changes and proofs.
package tune

import (
	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
)

// tuneCommands are the commands that look at a host's tuning.
type tuneCommands struct{ *app.App }

func (a tuneCommands) tuneCommand() *cobra.Command {
	tune := &cobra.Command{Use: "tune", Short: "Audit and change the configuration of this host for VMs"}
	tune.AddCommand(a.tuneAudit(), a.tuneRules(), a.tuneExplain(), a.tuneProfiles(), a.tuneVerifyCommand(),
		a.whySlowCommand())
	tune.AddCommand(applyCommands(a).tuneApplyCommands()...)
	return tune
}

// Commands are the commands of a host's tuning.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{tuneCommands{a}.tuneCommand()}
}
