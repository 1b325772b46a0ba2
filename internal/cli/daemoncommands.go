package cli

import "github.com/spf13/cobra"

// commandsOfAgent are the commands of a host's agent.
func commandsOfAgent(a *app) []*cobra.Command {
	return []*cobra.Command{a.agentCommand()}
}

// commandsOfServer are the commands of a fleet's servers and their database.
func commandsOfServer(a *app) []*cobra.Command {
	return []*cobra.Command{a.serverCommand(), a.storeCommand()}
}
