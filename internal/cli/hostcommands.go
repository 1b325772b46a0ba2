// Package host has the commands of hosts: this one, recorded ones, and those of the fleet.
package cli

import (
	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
)

// commandsOfHosts are the commands of hosts.
func commandsOfHosts(a *app.App) []*cobra.Command {
	return []*cobra.Command{hostCommands{a}.hostCommand(), selftestCommands{a}.selftestCommand()}
}
