package cli

import "github.com/spf13/cobra"

// commandsOfAgent are the commands of a host's agent.
func commandsOfAgent(a *app) []*cobra.Command {
	return []*cobra.Command{agentCommands{a}.agentCommand()}
}

// commandsOfServer are the commands of a fleet's servers and their database.
func commandsOfServer(a *app) []*cobra.Command {
	return []*cobra.Command{serverCommands{a}.serverCommand(), serverCommands{a}.storeCommand()}
}
