// Package vm has the commands of virtual machines: the fleet's, and those of this host.
package vm

import (
	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
)

// Commands are the commands of virtual machines, the fleet's and those of this host.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{
		vmCommands{a}.vmCommand(), sshCommands{a}.sshCommand(), groupCommands{a}.groupCommand(),
		securityGroupCommands{a}.securityGroupCommand(),
		whyCommands{a}.whyCommand(), watchCommands{a}.watchCommand(),
	}
}
