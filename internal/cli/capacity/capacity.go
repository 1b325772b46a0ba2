// Package capacity has the commands that tell what a farm delivers, and what it could.
package capacity

import (
	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
)

type commands struct{ *app.App }

// Commands are the commands of capacity.
func Commands(a *app.App) []*cobra.Command {
	group := commands{a}.presentCommand()
	group.AddCommand(commands{a}.planCommand())
	return []*cobra.Command{group}
}
