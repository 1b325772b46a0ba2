// Package daemon has the commands that run the agent and the server, and those of the server's own data.
package daemon

import (
	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
)

// AgentCommands are the commands of a host's agent.
func AgentCommands(a *app.App) []*cobra.Command {
	return []*cobra.Command{agentCommands{a}.agentCommand()}
}

// ServerCommands are the commands of a fleet's servers and their database.
func ServerCommands(a *app.App) []*cobra.Command {
	return []*cobra.Command{serverCommands{a}.serverCommand(), serverCommands{a}.storeCommand()}
}
