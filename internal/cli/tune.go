package cli

import "github.com/spf13/cobra"

func (a *app) tuneCommand() *cobra.Command {
	tune := &cobra.Command{Use: "tune", Short: "Audit and change the configuration of this host for VMs"}
	tune.AddCommand(a.tuneAudit(), a.tuneRules(), a.tuneExplain(), a.tuneProfiles(), a.tuneVerifyCommand())
	tune.AddCommand(a.tuneApplyCommands()...)
	return tune
}

// commandsOfTuning are the commands of a host's tuning.
func commandsOfTuning(a *app) []*cobra.Command { return []*cobra.Command{a.tuneCommand()} }
