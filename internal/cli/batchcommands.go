package cli

import "github.com/spf13/cobra"

// commandsOfBatchSystems are the commands of batch systems.
func commandsOfBatchSystems(a *app) []*cobra.Command {
	return []*cobra.Command{a.slurmCommand(), a.gridEngineCommand(), a.htcondorCommand(), a.pbsCommand(),
		a.lsfCommand(), a.batchCommand(), a.workerCommand()}
}
