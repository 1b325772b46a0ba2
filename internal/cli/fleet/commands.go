// Package fleet has the commands of what a fleet consists of: cells, projects, shapes, networks, the farm's file.
package fleet

import (
	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
)

// Commands are the commands of what a fleet consists of.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{
		cellCommands{a}.cellCommand(), projectCommands{a}.projectCommand(), catalogueCommands{a}.shapeCommand(),
		networkCommands{a}.networkCommand(), farmCommands{a}.applyCommand(), farmCommands{a}.diffCommand(),
		farmCommands{a}.exportCommand(), simCommands{a}.simCommand(),
	}
}
