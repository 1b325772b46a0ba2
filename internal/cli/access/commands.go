// Package access has the commands of who may do what in the fleet, and who did.
package access

import (
	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
)

// Commands are the commands of who may do what in the fleet, and who did.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{
		userCommands{a}.userCommand(), tokenCommands{a}.tokenCommand(), authCommands{a}.authCommand(),
		auditCommands{a}.auditCommand(),
		loginCommands{a}.loginCommand(), loginCommands{a}.logoutCommand(),
	}
}
