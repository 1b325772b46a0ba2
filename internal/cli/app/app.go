// Package app is what all commands share: how they reach agents and servers, how their flags are read and completed,
// their errors and exit statuses, and the tree that they are put into.
package app

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/version"
)

// DefaultSocket is where the agent of a host listens.
const DefaultSocket = "/run/grange/agent.sock"

// App is what all commands share.
type App struct {
	Socket string
	Server string // URL or socket; "": as findServer finds it
	JSON   bool
	Out    io.Writer
	Err    io.Writer
}

// Client is a client of the agent.
func (a *App) Client() *api.Client { return api.NewClient(a.Socket) }

// Tree is the command line with these commands, which refuses what makes no sense.
func (a *App) Tree(groups ...Group) *cobra.Command {
	root := &cobra.Command{
		Use:   "grange",
		Short: "Run each job in a fresh virtual machine",
		Long: `grange runs each job in a virtual machine of its own. The VM is created for the job, sized
and pinned for the host, and deleted when the job ends.`,
		Version:       version.Long(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	socket := os.Getenv("GRANGE_SOCKET")
	if socket == "" {
		socket = DefaultSocket
	}
	root.PersistentFlags().StringVar(&a.Socket, "socket", socket, "`PATH` of the agent's socket, or $GRANGE_SOCKET")
	root.PersistentFlags().StringVar(&a.Server, "server", os.Getenv("GRANGE_SERVER"),
		"`URL` or socket of the server, or $GRANGE_SERVER")
	root.PersistentFlags().BoolVar(&a.JSON, "json", false, "print output as JSON")
	for _, g := range groups {
		if g.Title != "" {
			root.AddGroup(&cobra.Group{ID: g.Title, Title: g.Title + ":"})
		}
		for _, cmd := range g.Commands {
			cmd.GroupID = g.Title
			root.AddCommand(cmd)
		}
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	strict(root)
	return root
}

// Group is some of the commands under a heading of their own in the help, or under none.
type Group struct {
	Title    string
	Commands []*cobra.Command
}

// PrintJSON prints a value as indented JSON.
func (a *App) PrintJSON(v any) error {
	encoder := output.NewJSON(a.Out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// SiteSocket leaves $GRANGE_SOCKET out of account: in the place of a batch job the environment is its user's, who could
// name an agent of their own there, in a VM of their own even, and have a queue's jobs run outside of the site's
// policy. A flag is the word of whoever wrote the hook.
func (a *App) SiteSocket(cmd *cobra.Command) {
	if !cmd.Flags().Changed("socket") {
		a.Socket = DefaultSocket
	}
}
