package cli

import "github.com/spf13/cobra"

// commandsOfVMs are the commands of virtual machines, the fleet's and those of this host.
func commandsOfVMs(a *app) []*cobra.Command {
	return []*cobra.Command{a.vmCommand(), a.sshCommand(), a.groupCommand(), a.whyCommand(), a.watchCommand()}
}
