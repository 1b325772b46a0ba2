package cli

import "github.com/spf13/cobra"

// commandsOfFleet are the commands of what a fleet consists of.
func commandsOfFleet(a *app) []*cobra.Command {
	return []*cobra.Command{a.cellCommand(), a.projectCommand(), a.shapeCommand(), a.networkCommand(),
		a.applyCommand(), a.diffCommand(), a.exportCommand(), a.simCommand()}
}
