// Package daemon has the commands that run the agent and the server, and those of the server's own data.
package daemon

import (
	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/gateway/confine"
	"github.com/grange-project/grange/internal/gateway/sftp"
	"github.com/grange-project/grange/internal/gateway/virtiofs"
)

// AgentCommands are the commands of a host's agent.
func AgentCommands(a *app.App) []*cobra.Command {
	return []*cobra.Command{agentCommands{a}.agentCommand(), serveDirectory()}
}

// serveDirectory is the process that machine.ServeCommand starts.
func serveDirectory() *cobra.Command {
	return &cobra.Command{Use: machine.ServeCommand[1], Short: "Start what serves a directory, for the agent",
		Hidden: true, Args: cobra.MaximumNArgs(2), RunE: func(_ *cobra.Command, args []string) error {
			return confine.Run(args, map[farm.Gateway]confine.Gateway{farm.Virtiofs: virtiofs.Gateway,
				farm.SFTP: sftp.Gateway})
		}}
}

// ServerCommands are the commands of a fleet's servers and their database.
func ServerCommands(a *app.App) []*cobra.Command {
	return []*cobra.Command{serverCommands{a}.serverCommand(), serverCommands{a}.storeCommand()}
}
