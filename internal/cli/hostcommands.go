package cli

import "github.com/spf13/cobra"

// commandsOfHosts are the commands of hosts.
func commandsOfHosts(a *app) []*cobra.Command {
	return []*cobra.Command{hostCommands{a}.hostCommand(), selftestCommands{a}.selftestCommand()}
}
