package filesystems

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/sleep"
)

// site is where file systems are drained: this host, or the fleet.
type site interface {
	DrainFileSystem(context.Context, api.FileSystemDrain) (api.FileSystemDrain, error)
	FileSystemDrains(context.Context) ([]api.FileSystemDrain, error)
	ResumeFileSystem(context.Context, string) error
}

// drainFlags are those of `grange mount drain`.
type drainFlags struct {
	deadline, until, reason string
	yes, noWait             bool
}

func drain(a *app.App) *cobra.Command {
	var f drainFlags
	cmd := &cobra.Command{Use: "drain NAME", Short: "Keep VMs off a network file system, around its maintenance",
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		Long: `Drain a network file system: no VM with directories of it starts on this host until ` + "`grange\n" +
			"mount resume`" + `. Jobs wait, batch jobs up to wait_timeout. VMs that run and have directories of it
are listed and waited for; those that still run at the deadline are ended, without one they
run until they end. Interrupting the command ends the waiting, not the drain.

NAME is a source or a mount point of ` + "`grange mount list`" + `.`,
		Example: "  grange mount drain server:/export --deadline 2h --until 6h --reason 'new disks'\n" +
			"  grange mount drain /cvmfs/atlas.example.org --no-wait --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := drainOf(args[0], f, time.Now())
			if err != nil {
				return err
			}
			return drainFrom(cmd.Context(), a, a.Client(), d, f)
		}}
	cmd.Flags().StringVar(&f.deadline, "deadline", "",
		"`TIME` at which VMs that still use the file system are ended, or a duration such as 2h")
	cmd.Flags().StringVar(&f.until, "until", "",
		"`TIME` at which the maintenance should be over, or a duration; shown to users")
	cmd.Flags().StringVar(&f.reason, "reason", "", "`TEXT` with the reason, shown to users")
	cmd.Flags().BoolVar(&f.noWait, "no-wait", false, "do not wait for VMs that run")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

func resume(a *app.App) *cobra.Command {
	return &cobra.Command{Use: "resume NAME", Short: "Let VMs use a drained file system again",
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		Long: `End the drain of a file system. Jobs that wait for that start.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Each(args, "resumed", func(name string) error {
				return a.Client().ResumeFileSystem(cmd.Context(), name)
			})
		}}
}

// drainOf is what the flags ask for.
func drainOf(name string, f drainFlags, now time.Time) (api.FileSystemDrain, error) {
	d := api.FileSystemDrain{Name: name, Reason: f.reason}
	var err error
	if d.Deadline, err = app.ParseExpiry(f.deadline, now); err == nil {
		d.Until, err = app.ParseExpiry(f.until, now)
	}
	return d, err
}

// drainFrom asks, drains, and waits for the VMs that still have directories of the file system.
func drainFrom(ctx context.Context, a *app.App, s site, d api.FileSystemDrain, f drainFlags) error {
	if !f.yes {
		question := "drain file system " + output.Visible(d.Name) + ", so that no VM with directories of it starts?"
		if d.Deadline != nil {
			question = fmt.Sprintf("drain file system %s, and end VMs that still use it at %s?", output.Visible(d.Name),
				d.Deadline.Local().Format("2006-01-02 15:04"))
		}
		if err := a.Confirm(ctx, question, "nothing was drained", "see `grange mount list`, then say --yes"); err != nil {
			return err
		}
	}
	d, err := s.DrainFileSystem(ctx, d)
	for told := ""; err == nil && len(d.VMs) > 0 && !f.noWait; d, err = again(ctx, s, d.Name) {
		if text := left(d.VMs); text != told {
			fmt.Fprintln(a.Err, text)
			told = text
		}
		if err := sleep.For(ctx, lookAgain); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(d)
	}
	if len(d.VMs) > 0 {
		fmt.Fprintln(a.Out, left(d.VMs))
		return nil
	}
	_, err = fmt.Fprintf(a.Out, "no VM has directories of %s\n", output.Visible(d.Name))
	return err
}

const lookAgain = time.Second

// again looks at a drain. An agent that starts anew goes on with it.
func again(ctx context.Context, s site, name string) (api.FileSystemDrain, error) {
	all, err := s.FileSystemDrains(ctx)
	for errors.Is(err, api.ErrNoAgent) {
		if err := sleep.For(ctx, lookAgain); err != nil {
			return api.FileSystemDrain{}, err
		}
		all, err = s.FileSystemDrains(ctx)
	}
	if err != nil {
		return api.FileSystemDrain{}, err
	}
	i := slices.IndexFunc(all, func(d api.FileSystemDrain) bool { return d.Name == name && !d.Fleet })
	if i < 0 {
		return api.FileSystemDrain{}, &farm.Error{Kind: farm.Conflict, Code: farm.CodeNoFileSystem,
			Message: "the drain of " + name + " was ended meanwhile", Hint: "see `grange mount list`"}
	}
	return all[i], nil
}

// left are VMs that are waited for.
func left(vms []api.FileSystemUser) string {
	var names []string
	for _, v := range vms {
		name := output.Visible(v.Name) + " of " + output.Visible(v.User)
		if v.Batch != "" {
			name += " (" + output.Visible(v.Batch) + ")"
		}
		names = append(names, name)
	}
	return fmt.Sprintf("%s left: %s", farm.Count(len(vms), "VM"), strings.Join(names, ", "))
}
