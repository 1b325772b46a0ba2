package cli

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

// app is what all commands share.
type app struct {
	socket string
	server string // URL or socket; "": as findServer finds it
	json   bool
	out    io.Writer
	err    io.Writer
}

func (a *app) client() *api.Client { return api.NewClient(a.socket) }

// tree is the command line with these commands, which refuses what makes no sense.
func (a *app) tree(groups ...commandGroup) *cobra.Command {
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
	root.PersistentFlags().StringVar(&a.socket, "socket", socket, "`PATH` of the agent's socket, or $GRANGE_SOCKET")
	root.PersistentFlags().StringVar(&a.server, "server", os.Getenv("GRANGE_SERVER"),
		"`URL` or socket of the server, or $GRANGE_SERVER")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print output as JSON")
	for _, g := range groups {
		if g.title != "" {
			root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		}
		for _, cmd := range g.commands {
			cmd.GroupID = g.title
			root.AddCommand(cmd)
		}
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	strict(root)
	return root
}

// commandGroup is some of the commands under a heading of their own in the help, or under none.
type commandGroup struct {
	title    string
	commands []*cobra.Command
}

func (a *app) printJSON(v any) error {
	encoder := output.NewJSON(a.out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// siteSocket leaves $GRANGE_SOCKET out of account: in the place of a batch job the environment is its user's, who could
// name an agent of their own there, in a VM of their own even, and have a queue's jobs run outside of the site's
// policy. A flag is the word of whoever wrote the hook.
func (a *app) siteSocket(cmd *cobra.Command) {
	if !cmd.Flags().Changed("socket") {
		a.socket = DefaultSocket
	}
}
