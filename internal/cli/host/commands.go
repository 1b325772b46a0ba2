// Package host has the commands of hosts: this one, recorded ones, and those of the fleet.
package host

import (
	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
)

// Commands are the commands of hosts.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{hostCommands{a}.hostCommand(), selftestCommands{a}.selftestCommand()}
}
