// Package job has the commands that run jobs, and those of the images that they run in.
package cli

import (
	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
)

// commandsOfJobs are the commands of jobs, and of the images that they run in.
func commandsOfJobs(a *app.App) []*cobra.Command {
	return []*cobra.Command{execCommands{a}.execCommand(), imageCommands{a}.imageCommand()}
}
