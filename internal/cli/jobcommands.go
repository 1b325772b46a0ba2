package cli

import "github.com/spf13/cobra"

// commandsOfJobs are the commands of jobs, and of the images that they run in.
func commandsOfJobs(a *app) []*cobra.Command {
	return []*cobra.Command{execCommands{a}.execCommand(), imageCommands{a}.imageCommand()}
}
