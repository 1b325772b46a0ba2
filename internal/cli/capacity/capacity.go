// Package capacity has the commands that tell what a farm can carry.
package capacity

import (
	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
)

type commands struct{ *app.App }

// Commands are the commands of capacity.
func Commands(a *app.App) []*cobra.Command {
	group := &cobra.Command{Use: "capacity", Short: "Tell what a farm can carry"}
	group.AddCommand(commands{a}.planCommand())
	return []*cobra.Command{group}
}
