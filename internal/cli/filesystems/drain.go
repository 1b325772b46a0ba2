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
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/sleep"
)

// site is where file systems are drained: this host, or the fleet.
type site interface {
	drain(context.Context, api.FileSystemDrain) (progress, error)
	look(ctx context.Context, name string) (progress, error)
}

// progress is how far a drain is.
type progress struct {
	left []string // what is waited for
	view any      // as JSON
}

// drainFlags are those of `grange mount drain`.
type drainFlags struct {
	deadline, until, reason string
	yes, noWait             bool
}

func drain(a *app.App) *cobra.Command {
	var f drainFlags
	cmd := app.LocalFlag(&cobra.Command{Use: "drain NAME", Short: "Keep VMs off a network file system",
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		Long: "Drain a network file system: until `grange mount resume`, no VM of a job with directories of\n" +
			`it starts, on all hosts or, without a server or with --local, on this one. Jobs wait, batch
jobs up to wait_timeout. VMs that run and have directories of it are listed and waited for;
those that still run at the deadline are ended, without one they run until they end.
Interrupting the command ends the waiting, not the drain.

NAME is a file system that the server's configuration declares, or on this host a source or a
mount point of ` + "`grange mount list --local`.",
		Example: "  grange mount drain work --deadline 2h --until 6h --reason 'new disks'\n" +
			"  grange mount drain --local /cvmfs/atlas.example.org --no-wait --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := drainOf(args[0], f, time.Now())
			if err != nil {
				return err
			}
			if a.Here(cmd) {
				return drainFrom(cmd.Context(), a, host{a.Client().FileSystems()}, d, f)
			}
			c, err := a.Fleet()
			if err != nil {
				return err
			}
			return drainFrom(cmd.Context(), a, servers{c}, d, f)
		}})
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
	return app.LocalFlag(&cobra.Command{Use: "resume NAME", Short: "Let VMs use a drained file system again",
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		Long: `End the drain of a file system. Jobs that wait for that start.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			end := a.Client().FileSystems().Resume
			if !a.Here(cmd) {
				c, err := a.Fleet()
				if err != nil {
					return err
				}
				end = func(ctx context.Context, name string) error {
					_, err := c.FileSystems.Resume(ctx, name)
					return err
				}
			}
			return a.Each(args, "resumed", func(name string) error { return end(cmd.Context(), name) })
		}})
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
		err := a.Confirm(ctx, question, "nothing was drained", "see `grange mount list`, then say --yes")
		if err != nil {
			return err
		}
	}
	is, err := s.drain(ctx, d)
	for told := ""; err == nil && len(is.left) > 0 && !f.noWait; is, err = again(ctx, s, d.Name) {
		if text := strings.Join(is.left, ", "); text != told {
			fmt.Fprintln(a.Err, "left:", text)
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
		return a.PrintJSON(is.view)
	}
	if len(is.left) > 0 {
		_, err = fmt.Fprintln(a.Out, "left:", strings.Join(is.left, ", "))
		return err
	}
	_, err = fmt.Fprintf(a.Out, "no VM has directories of %s\n", output.Visible(d.Name))
	return err
}

const lookAgain = time.Second

// again looks at a drain. An agent or a server that starts anew goes on with it.
func again(ctx context.Context, s site, name string) (progress, error) {
	for {
		is, err := s.look(ctx, name)
		if !errors.Is(err, api.ErrNoAgent) && !errors.Is(err, fleet.ErrNoServer) {
			return is, err
		}
		if err := sleep.For(ctx, lookAgain); err != nil {
			return is, err
		}
	}
}

func endedMeanwhile(name string) error {
	return &farm.Error{Kind: farm.Conflict, Code: farm.CodeNoFileSystem,
		Message: "the drain of " + name + " was ended meanwhile", Hint: "see `grange mount list`"}
}

// host drains file systems of this host alone.
type host struct{ api.FileSystems }

func (h host) drain(ctx context.Context, d api.FileSystemDrain) (progress, error) {
	d, err := h.Drain(ctx, d)
	return ofHost(d), err
}

func (h host) look(ctx context.Context, name string) (progress, error) {
	all, err := h.Drains(ctx)
	if err != nil {
		return progress{}, err
	}
	i := slices.IndexFunc(all, func(d api.FileSystemDrain) bool { return d.Name == name && !d.Fleet })
	if i < 0 {
		return progress{}, endedMeanwhile(name)
	}
	return ofHost(all[i]), nil
}

func ofHost(d api.FileSystemDrain) progress {
	is := progress{view: d}
	for _, v := range d.VMs {
		name := output.Visible(v.Name) + " of " + output.Visible(v.User)
		if v.Batch != "" {
			name += " (" + output.Visible(v.Batch) + ")"
		}
		is.left = append(is.left, name)
	}
	return is
}

// servers drain file systems of all hosts.
type servers struct{ *fleet.Client }

func (s servers) drain(ctx context.Context, d api.FileSystemDrain) (progress, error) {
	f, err := s.FileSystems.Drain(ctx, d.Name,
		fleet.FileSystemOrder{Deadline: d.Deadline, Until: d.Until, Reason: d.Reason})
	return ofFleet(f), err
}

func (s servers) look(ctx context.Context, name string) (progress, error) {
	all, err := s.FileSystems.List(ctx)
	if err != nil {
		return progress{}, err
	}
	i := slices.IndexFunc(all, func(f fleet.FileSystem) bool { return f.Name == name && f.Drain != nil })
	if i < 0 {
		return progress{}, endedMeanwhile(name)
	}
	return ofFleet(all[i]), nil
}

// ofFleet waits for hosts whose VMs have directories of the file system, and for those that do not keep the drain yet.
func ofFleet(f fleet.FileSystem) progress {
	is := progress{view: f}
	for _, h := range f.Hosts {
		switch name := output.Visible(h.Host); {
		case !h.Drained:
			is.left = append(is.left, name+" (has not answered)")
		case h.VMs > 0:
			is.left = append(is.left, fmt.Sprintf("%s (%s)", name, farm.Count(h.VMs, "VM")))
		}
	}
	return is
}
