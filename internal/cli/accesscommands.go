package cli

import "github.com/spf13/cobra"

// commandsOfAccess are the commands of who may do what in the fleet, and who did.
func commandsOfAccess(a *app) []*cobra.Command {
	return []*cobra.Command{
		userCommands{a}.userCommand(), tokenCommands{a}.tokenCommand(), authCommands{a}.authCommand(),
		auditCommands{a}.auditCommand(),
	}
}
