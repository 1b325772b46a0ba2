package job

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/runner"
	"github.com/grange-project/grange/internal/shell"
)

// shellCommands are the commands of sessions in VMs.
type shellCommands struct{ *app.App }

type shellFlags struct {
	pool, image, shape, memory, escape string
	cpus                               int
	binds, env, publish                []string
}

func (a shellCommands) shellCommand() *cobra.Command {
	var f shellFlags
	cmd := &cobra.Command{
		Use:   "shell [flags] [-- COMMAND [ARGUMENT...]]",
		Short: "Work in a virtual machine of a pool",
		Long: `Start a VM of a pool of this host and have a terminal in it, as yourself: your login shell, or
the command. ` + "`grange pool list`" + ` shows the pools; without --pool it is the pool called default, or the
only one. What the pool gives is what a VM without further flags has.

The session goes on when your terminal closes, unless its pool says otherwise: leave it with ~d at
the start of a line, and go on with ` + "`grange shell attach`" + `, from another login too. The pool's limits end
it, with a warning at the terminal before. Nobody but you can attach.

At the start of a line: ~d detaches, ~. ends the session, ~~ types ~, ~? prints these.

The exit status is that of the command, as grange exec has it; 0 when you detach.`,
		Example: `  grange shell
  grange shell --pool analysis --cpus 4 --memory 8G
  grange shell --publish 8888 -- jupyter lab --no-browser
  grange shell attach`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return app.Usage("grange shell -- COMMAND", "`grange shell` has no command %q", args[0])
			}
			return nil
		},
		RunE:              func(cmd *cobra.Command, args []string) error { return a.run(cmd.Context(), f, args) },
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.pool, "pool", "", "`POOL` that the VM is of")
	flags.StringVar(&f.image, "image", "", "`IMAGE` of the VM, where the pool allows others than its own")
	flags.StringVar(&f.shape, "shape", "", "`SHAPE` of the VM, where the pool allows others than its own")
	flags.IntVar(&f.cpus, "cpus", 0, "number of CPUs")
	flags.StringVar(&f.memory, "memory", "", "`SIZE` of the VM's memory, for example 2G")
	flags.StringArrayVar(&f.binds, "bind", nil, "bind mount a host directory in the VM, beside those of the pool: `"+
		farm.BindSyntax+"` (repeatable)")
	flags.StringArrayVar(&f.env, "env", nil, "set an environment variable: `K=V` (repeatable)")
	flags.StringArrayVar(&f.publish, "publish", nil, publishUsage)
	cmd.PersistentFlags().StringVar(&f.escape, "escape", "~", "escape `CHARACTER` at the start of a line; none: no escapes")
	app.Complete(cmd, "pool", (&poolCommands{a.App}).names)
	cmd.RegisterFlagCompletionFunc("image", a.CompleteImages)
	cmd.AddCommand(a.attach(&f), a.list(), a.end(), a.keep())
	return cmd
}

func (a shellCommands) attach(f *shellFlags) *cobra.Command {
	return &cobra.Command{Use: "attach [ID]", Short: "Go on with a session that was left", Args: cobra.MaximumNArgs(1),
		Long: `Go on with a session of yours on this host, in this terminal: the only one, or the one whose ID
begins so. A terminal that has it already is detached. Of a session that ended meanwhile the last
output and the status are printed, once.`,
		ValidArgsFunction: app.CompleteFirst(sessionIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.terminal(f.escape)
			if err != nil {
				return err
			}
			return a.join(cmd.Context(), strings.Join(args, ""), t)
		}}
}

func (a shellCommands) list() *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List your sessions on this host", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return app.Table[shell.Session]{None: "you have no session on this host",
				Head: "ID\tPOOL\tCOMMAND\tAGE\tSTATE", Line: sessionLine}.Print(a.App, shell.Mine().List())
		}}
}

func sessionLine(s shell.Session) []any {
	state := "detached"
	switch {
	case s.Ended != nil:
		state = fmt.Sprintf("ended with status %d", s.Status)
	case s.Attached:
		state = "attached"
	}
	return []any{s.ID, app.Dash(s.Pool), s.Command, app.Age(s.Started), state}
}

func (a shellCommands) end() *cobra.Command {
	return &cobra.Command{Use: "end ID", Short: "End a session, and its VM", Args: cobra.ExactArgs(1),
		Long: `End a session: its command gets HUP as from a terminal that closes, then TERM, and after ten
seconds its VM is taken away.`,
		ValidArgsFunction: app.CompleteFirst(sessionIDs),
		RunE: func(_ *cobra.Command, args []string) error {
			id, err := shell.Mine().End(args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(map[string]string{"id": id})
			}
			_, err = fmt.Fprintf(a.Out, "%s ends\n", id)
			return err
		}}
}

// keep is the process behind a session. It reads its order, says "ready" or what is wrong, and stays.
func (a shellCommands) keep() *cobra.Command {
	return &cobra.Command{Use: "keep", Short: "Keep a session", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return shell.Mine().Serve(cmd.Context(), os.Stdin, os.Stdout)
		}}
}

func sessionIDs() []string {
	return app.NamesOf(shell.Mine().List(), func(s shell.Session) string { return s.ID })
}

// terminal is the one that we run in.
func (a shellCommands) terminal(escape string) (shell.Terminal, error) {
	t := shell.Terminal{In: os.Stdin, Out: os.Stdout, Notes: a.Err}
	switch {
	case a.JSON:
		return t, app.Usage("leave --json out", "a session prints no JSON: its output is that of its command")
	case escape == "none":
	case len(escape) == 1 && escape[0] > ' ' && escape[0] < 0x7f:
		t.Escape = escape[0]
	default:
		return t, app.Usage("--escape ~, or --escape none", "--escape %q is not one character", escape)
	}
	return t, t.Check()
}

func (a shellCommands) run(ctx context.Context, f shellFlags, command []string) error {
	t, err := a.terminal(f.escape)
	if err != nil {
		return err
	}
	if _, err := parseBinds(f.binds); err != nil {
		return err
	}
	if _, err := runner.ParsePublished(f.publish); err != nil {
		return err
	}
	pool, err := (&poolCommands{a.App}).pool(ctx, f.pool)
	if err != nil {
		return err
	}
	argv, err := a.command(f, pool, command)
	if err != nil {
		return err
	}
	shown := "login shell"
	if len(command) > 0 {
		shown = filepath.Base(command[0]) // arguments may hold secrets
	}
	id := api.NewID()[:8]
	self, err := app.OwnPath()
	if err != nil {
		return err
	}
	order := shell.Order{Argv: argv, Size: t.Size(),
		Session: shell.Session{ID: id, Pool: pool.Name, Command: shown, Detach: pool.Detach}}
	if err := order.Start(self, "shell", "keep"); err != nil {
		return err
	}
	return a.join(ctx, id, t)
}

func (a shellCommands) join(ctx context.Context, ref string, t shell.Terminal) error {
	o, err := shell.Mine().Attach(ctx, ref, t)
	if err != nil {
		return err
	}
	return app.ExitError{Status: o.Status}
}

// loginShell is the user's where the image has it.
const loginShell = `for s in "$SHELL" /bin/bash /bin/sh; do test -x "$s" && exec "$s" -l; done`

// command is what runs in the session's terminal: the wrapper of a job of this host, or the batch system's own command
// for jobs with a terminal.
func (a shellCommands) command(f shellFlags, pool api.Pool, command []string) ([]string, error) {
	if len(command) == 0 {
		command = []string{"/bin/sh", "-c", loginShell}
	}
	if pool.Batch == string(farm.Slurm) {
		return f.srun(pool, command)
	}
	self, err := app.OwnPath()
	if err != nil {
		return nil, err
	}
	argv := []string{self, "--socket", a.Socket, "exec", "--tty"}
	add := func(flag, value string) {
		if value != "" {
			argv = append(argv, flag, value)
		}
	}
	add("--pool", pool.Name)
	add("--image", f.image)
	add("--shape", f.shape)
	add("--memory", f.memory)
	if f.cpus != 0 {
		add("--cpus", strconv.Itoa(f.cpus))
	}
	for flag, values := range map[string][]string{"--bind": f.binds, "--env": f.env, "--publish": f.publish} {
		for _, v := range values {
			add(flag, v)
		}
	}
	return append(append(argv, "--"), command...), nil
}

// srun is Slurm's command for a job with a terminal. The plug-in puts it into a VM; the pool reaches the host by a
// variable, and what the pool allows is judged there.
func (f shellFlags) srun(pool api.Pool, command []string) ([]string, error) {
	if len(f.publish) > 0 {
		return nil, app.Usage("leave --publish out, or take a pool of the agent's: `grange pool list`",
			"a VM in a job of Slurm runs on a host that Slurm chooses: its ports cannot be published here")
	}
	vm := f.image
	if vm == "" {
		vm = pool.Image
	}
	if f.shape != "" {
		vm += ":" + f.shape
	}
	argv := []string{"srun", "--pty", "--vm=" + vm, "--job-name=grange-shell"}
	if f.cpus > 0 {
		argv = append(argv, fmt.Sprintf("--cpus-per-task=%d", f.cpus))
	}
	if f.memory != "" {
		size, err := farm.ParseBytes(f.memory)
		if err != nil {
			return nil, err
		}
		argv = append(argv, fmt.Sprintf("--mem=%dM", uint64(size)>>20))
	}
	if len(f.binds) > 0 {
		argv = append(argv, "--vm-mount="+strings.Join(f.binds, ","))
	}
	argv = append(argv, pool.Options...)
	set := append([]string{"env", runner.PoolVariable + "=" + pool.Name}, f.env...)
	return append(append(set, argv...), command...), nil
}
