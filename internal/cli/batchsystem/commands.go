// Package batchsystem has the commands of batch systems: their installation and check, and what their hooks call.
package batchsystem

import (
	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
)

// Commands are the commands of batch systems.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{
		slurmCommands{a}.slurmCommand(), gridEngineCommands{a}.gridEngineCommand(),
		condorCommands{a}.htcondorCommand(), pbsCommands{a}.pbsCommand(), lsfCommands{a}.lsfCommand(),
		batchCommands{a}.batchCommand(), workerCommands{a}.workerCommand(),
	}
}
