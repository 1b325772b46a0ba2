package cli

import "github.com/spf13/cobra"

// commandsOfVMs are the commands of virtual machines, the fleet's and those of this host.
func commandsOfVMs(a *app) []*cobra.Command {
	return []*cobra.Command{
		vmCommands{a}.vmCommand(), sshCommands{a}.sshCommand(), groupCommands{a}.groupCommand(),
		whyCommands{a}.whyCommand(), watchCommands{a}.watchCommand(),
	}
}
