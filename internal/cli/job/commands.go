// Package job has the commands that run jobs, and those of the images that they run in.
package job

import (
	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
)

// Commands are the commands of jobs, and of the images that they run in.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{execCommands{a}.execCommand(), shellCommands{a}.shellCommand(),
		(&poolCommands{a}).poolCommand(), imageCommands{a}.imageCommand(), jobCommands{a}.jobCommand()}
}
