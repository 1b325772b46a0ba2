package cli

import "github.com/spf13/cobra"

// commandsOfBatchSystems are the commands of batch systems.
func commandsOfBatchSystems(a *app) []*cobra.Command {
	return []*cobra.Command{
		slurmCommands{a}.slurmCommand(), gridEngineCommands{a}.gridEngineCommand(),
		condorCommands{a}.htcondorCommand(), pbsCommands{a}.pbsCommand(), lsfCommands{a}.lsfCommand(),
		batchCommands{a}.batchCommand(), workerCommands{a}.workerCommand(),
	}
}
