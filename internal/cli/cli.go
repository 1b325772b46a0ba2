// Package cli is the command line: one file a noun. It wires packages together and prints; it decides nothing about
// VMs.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/disk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/runner"
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

// exitError carries an exit status through cobra. Its message was printed, or there is none.
type exitError struct{ status int }

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// Main runs the command line and returns the exit status.
func Main(args []string) int {
	out := &output{to: os.Stdout}
	a := &app{out: text{out}, err: text{os.Stderr}}
	root := a.root()
	root.SetArgs(args)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd, err := root.ExecuteContextC(ctx)
	if lost := out.lost(); err == nil || errors.As(err, new(exitError)) && lost != nil {
		err = lost
	}
	var death deathError
	if errors.As(err, &death) {
		return runner.Die(death.signal)
	}
	var exit exitError
	if errors.As(err, &exit) {
		return exit.status
	}
	if err != nil {
		printError(a.err, err)
		if inPlaceOfJob(cmd) { // its batch system would take any other status for the job's own
			return batch.ExitNever
		}
		return statusOf(err)
	}
	return 0
}

func (a *app) root() *cobra.Command {
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
	for _, g := range a.groups() {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, cmd := range g.commands {
			cmd.GroupID = g.title
			root.AddCommand(cmd)
		}
	}
	root.AddCommand(a.manCommand())
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	strict(root)
	return root
}

// commandGroup is some of the commands under a heading of their own in the help.
type commandGroup struct {
	title    string
	commands []*cobra.Command
}

func (a *app) groups() []commandGroup {
	return []commandGroup{
		{"Jobs", []*cobra.Command{a.execCommand(), a.hookCommand(), a.imageCommand()}},
		{"Virtual machines", []*cobra.Command{a.vmCommand(), a.sshCommand(), a.groupCommand(), a.whyCommand(),
			a.watchCommand()}},
		{"Hosts", []*cobra.Command{a.agentCommand(), a.hostCommand(), a.tuneCommand(), a.selftestCommand()}},
		{"Batch systems", []*cobra.Command{a.slurmCommand(), a.gridEngineCommand(), a.htcondorCommand(), a.pbsCommand(),
			a.lsfCommand(), a.batchCommand(), a.workerCommand()}},
		{"Fleet", []*cobra.Command{a.serverCommand(), a.storeCommand(), a.cellCommand(), a.projectCommand(),
			a.shapeCommand(), a.networkCommand(), a.applyCommand(), a.diffCommand(), a.exportCommand(),
			a.simCommand()}},
		{"Access", []*cobra.Command{a.userCommand(), a.tokenCommand(), a.authCommand(), a.auditCommand()}},
	}
}

// usage is the error of a command line that makes no sense.
func usage(hint, format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeUsage, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// printError prints two lines: what, with the code that docs/errors.md explains, and what to try.
func printError(w io.Writer, err error) {
	err = disk.NoSpace(err)
	message, hint := explain(err)
	first, rest, more := strings.Cut(message, "\n") // the end of a console may follow
	first = visible(first)
	if code := codeOf(err); code != "" {
		first += " [" + code + "]"
	}
	fmt.Fprintf(w, "grange: %s\n", first)
	if more {
		// a path with a line break is no line of ours
		fmt.Fprintf(w, "    %s\n", strings.ReplaceAll(visible(rest), "\n", "\n    "))
	}
	if hint != "" {
		fmt.Fprintf(w, "  try: %s\n", visible(hint))
	}
}

func explain(err error) (message, hint string) {
	problem, own := new(api.Problem), new(farm.Error)
	switch {
	case errors.As(err, &problem):
		return problem.Detail, problem.Hint
	case errors.As(err, &own):
		return err.Error(), own.Hint
	}
	if own := serverError(err); own != nil {
		return own.Message, own.Hint
	}
	if own := agentError(err); own != nil {
		return own.Message, own.Hint
	}
	return err.Error(), ""
}

// agentError is why a request has no answer, without the means by which it was sent; nil where err is something else.
func agentError(err error) *farm.Error {
	request := new(url.Error)
	if !errors.As(err, &request) || errors.Is(err, context.Canceled) {
		return nil
	}
	own := &farm.Error{Kind: farm.Unavailable, Code: CodeNoAgent,
		Message: "the agent did not answer: " + request.Err.Error(),
		Hint:    "see whether it runs, and its log: journalctl -u grange-agent", Err: err}
	if !errors.Is(err, api.ErrNoAgent) {
		return own
	}
	own.Message, own.Hint = api.ErrNoAgent.Error(), "start it with `grange agent`, or name its socket with --socket"
	if dial := new(net.OpError); errors.As(err, &dial) && dial.Addr != nil {
		own.Message += " on " + dial.Addr.String()
	}
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		own.Message += ": " + errno.Error()
	}
	if errors.Is(err, syscall.EACCES) {
		own.Hint = "ask the host's administrator for access to the agent's socket"
	}
	return own
}

// codeOf is the error's code; empty for what has none.
func codeOf(err error) string {
	problem, own := new(api.Problem), new(farm.Error)
	switch {
	case errors.As(err, &problem):
		return strings.TrimPrefix(problem.Type, "grange:")
	case errors.As(err, &own):
		return string(own.Code)
	}
	if own := serverError(err); own != nil {
		return string(own.Code)
	}
	if own := agentError(err); own != nil {
		return string(own.Code)
	}
	return ""
}

// statusOf is the one table from errors to exit statuses, for commands other than exec.
func statusOf(err error) int {
	if own := new(farm.Error); errors.As(err, &own) && own.Code == farm.CodeUsage {
		return exitUsage
	}
	return exitFailed
}

func (a *app) printJSON(v any) error {
	encoder := newJSON(a.out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
