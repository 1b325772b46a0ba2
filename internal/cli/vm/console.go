package vm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
)

// escapeKey leaves a console: Ctrl and ], as virsh and telnet have it.
const escapeKey = 0x1d

// fleetConsole connects the terminal with the serial console of a VM.
func (a vmCommands) fleetConsole(ctx context.Context, ref, project string) error {
	c, v, err := a.fleetVM(ctx, ref, project)
	if err != nil {
		return err
	}
	stream, err := c.VMs.Stream(ctx, v.ID, fleet.StreamConsole, 0)
	if err != nil {
		return err
	}
	defer stream.Close()
	var in io.Reader = os.Stdin
	if fd := int(os.Stdin.Fd()); term.IsTerminal(fd) {
		fmt.Fprintf(a.Err, "Connected to the console of %s. Ctrl-] leaves it.\n", fullName(v))
		old, err := term.MakeRaw(fd)
		if err != nil {
			return err
		}
		defer fmt.Fprintln(a.Err)
		defer term.Restore(fd, old)
		in = &untilEscape{r: os.Stdin}
	}
	return bothWays(ctx, stream, in, output.RawOf(a.Out))
}

// untilEscape ends at the escape key.
type untilEscape struct {
	r     io.Reader
	ended bool
}

func (u *untilEscape) Read(p []byte) (int, error) {
	if u.ended {
		return 0, errLeft
	}
	n, err := u.r.Read(p)
	if i := bytes.IndexByte(p[:n], escapeKey); i >= 0 {
		u.ended = true
		if n = i; n == 0 {
			return 0, errLeft
		}
		return n, nil
	}
	return n, err
}

// errLeft ends a console that its user has left.
var errLeft = fmt.Errorf("the user left")

// bothWays copies both ways until the stream is over, or its user has left. The end of the input alone ends nothing:
// what was asked may be answered yet.
func bothWays(ctx context.Context, stream io.ReadWriteCloser, in io.Reader, out io.Writer) error {
	left := make(chan error, 1)
	go func() {
		if _, err := io.Copy(stream, in); err != nil {
			left <- err
		}
	}()
	over := make(chan error, 1)
	go func() {
		_, err := io.Copy(out, stream)
		over <- err
	}()
	select {
	case err := <-over:
		return err
	case <-left:
		return nil
	case <-ctx.Done(): // by a signal: nothing need be said
		return app.ExitError{Status: app.ExitFailed}
	}
}

// vmConnect is for programs: ssh's ProxyCommand.
func (a vmCommands) vmConnect() *cobra.Command {
	var project string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "connect VM PORT", Short: "Connect standard input and output to a port of a VM",
		Args: cobra.ExactArgs(2), ValidArgsFunction: a.completeFleetVMs,
		Long: "Connect standard input and output to a TCP port of a virtual machine, through the server and\n" +
			"the VM's host. The VM does not need an address that is reachable from here. The command is\n" +
			"meant for ssh's ProxyCommand; `grange ssh` uses it automatically.",
		Example: "  scp -o ProxyCommand='grange vm connect %h %p' file root@atlas/web-1:",
		RunE: func(cmd *cobra.Command, args []string) error {
			port, err := strconv.ParseUint(args[1], 10, 16)
			if err != nil || port == 0 {
				return app.Usage("a number from 1 to 65535", "invalid port %q", args[1])
			}
			c, err := a.Fleet()
			if err != nil {
				return err
			}
			ref := args[0]
			if !farm.IsID(ref) {
				v, err := findVM(cmd.Context(), c, ref, project)
				if err != nil {
					return err
				}
				ref = v.ID
			}
			stream, err := a.awaitPort(cmd.Context(), c, ref, int(port), timeout)
			if err != nil {
				return err
			}
			defer stream.Close()
			return bothWays(cmd.Context(), stream, os.Stdin, output.RawOf(a.Out))
		},
	}
	projectFlag(cmd, &project)
	cmd.Flags().DurationVar(&timeout, "wait", 0, "time to wait for the port of a VM that is still booting")
	return cmd
}

// awaitPort opens a stream to a port that perhaps nobody listens on yet.
func (a vmCommands) awaitPort(ctx context.Context, c *fleet.Client, vm string, port int,
	timeout time.Duration) (io.ReadWriteCloser, error) {
	const pause = time.Second
	for told, end := false, time.Now().Add(timeout); ; {
		stream, err := c.VMs.Stream(ctx, vm, fleet.StreamTCP, port)
		if err == nil || app.CodeOf(err) != string(farm.CodeVMPort) || time.Now().Add(pause).After(end) {
			return stream, err
		}
		if !told {
			told = true
			fmt.Fprintf(a.Err, "grange: port %d does not answer yet; waiting up to %v\n", port, timeout)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
