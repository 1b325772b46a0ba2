package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// verb is one thing that people do with VMs.
type verb struct {
	name, short, done string
	until             string // what --wait waits for; "": there is nothing to wait for
	do                func(context.Context, *fleet.Client, fleet.VM) (fleet.VM, error)
	came              func(fleet.VM) error // whether it came as asked for, behind --wait; nil: the VM's state tells
}

// manyVMs is a command on any number of VMs, by names and patterns.
func (a *app) manyVMs(v verb) *cobra.Command {
	var project string
	var w waitFlags
	cmd := &cobra.Command{Use: v.name + " VM...", Short: v.short, Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeFleetVMs,
		Long:              v.short + ". VMs are named PROJECT/NAME, NAME, by ID, or by a pattern as 'web-*'.",
		RunE: func(cmd *cobra.Command,
			args []string) error {
			return a.doVMs(cmd.Context(), v, args, project, w)
		}}
	projectFlag(cmd, &project)
	if v.until != "" {
		w.register(cmd, v.until)
	}
	return cmd
}

func (a *app) doVMs(ctx context.Context, v verb, refs []string, project string, w waitFlags) error {
	c, err := a.fleet()
	if err != nil {
		return err
	}
	vms, err := findVMs(ctx, c, refs, project)
	if err != nil {
		return err
	}
	var done []fleet.VM
	var last error
	for _, vm := range vms {
		after, err := v.do(ctx, c, vm)
		if err != nil {
			if last != nil {
				printError(a.err, last)
			}
			last = fmt.Errorf("%s: %w", fullName(vm), err)
			continue
		}
		if !a.json {
			fmt.Fprintf(a.out, "%s %s\n", fullName(vm), v.done)
		}
		done = append(done, after)
	}
	done, err = w.until(ctx, a, c, done)
	if w.wait && v.came != nil {
		for _, vm := range done {
			err = errors.Join(err, v.came(vm))
		}
	}
	if a.json {
		last = errors.Join(last, a.printJSON(append([]fleet.VM{}, done...)))
	}
	if last == nil {
		last = err
	}
	return last
}

func (a *app) vmStart() *cobra.Command {
	return a.manyVMs(verb{"start", "Start virtual machines that are stopped", "is to start", "they run",
		func(ctx context.Context, c *fleet.Client, v fleet.VM) (fleet.VM, error) { return c.StartVM(ctx, v.ID) }, nil})
}

func (a *app) vmRestart() *cobra.Command {
	return a.manyVMs(verb{"restart", "Restart virtual machines", "is to restart", "they run again",
		func(ctx context.Context, c *fleet.Client, v fleet.VM) (fleet.VM, error) {
			return c.RestartVM(ctx, v.ID)
		}, nil})
}

func (a *app) vmDelete() *cobra.Command {
	return a.manyVMs(verb{"delete", "Delete virtual machines, their disks and their leases", "is to be deleted",
		"nothing of them is left", func(ctx context.Context, c *fleet.Client, v fleet.VM) (fleet.VM, error) {
			v, err := c.DeleteVM(ctx, v.ID)
			if err == nil {
				forget(v.ID)
			}
			return v, err
		}, nil})
}

// forget removes what is kept of a VM on this machine. What was never there is no error.
func forget(vm string) {
	os.Remove(keyFile(vm))
	os.Remove(knownHosts(vm))
}

// resized reports whether a VM has the size that was asked for. Its host may have had no room: the VM then goes on as
// it was.
func resized(v fleet.VM, r fleet.VMResize) error {
	if (r.Shape == "" || v.Shape.Name == r.Shape) && (r.CPUs == 0 || v.Shape.CPUs == r.CPUs) &&
		(r.Memory == 0 || v.Shape.Memory == r.Memory) {
		return nil
	}
	return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeNoRoom, Message: fullName(v) + ": " + v.Notice,
		Hint: "it goes on as it was; end another VM of its host, or make a new one of that size"}
}

func (a *app) vmResize() *cobra.Command {
	var r fleet.VMResize
	var memory string
	v := verb{"resize", "Give virtual machines another size, on their own hosts; they are stopped and started for that",
		"is to be resized", "they run with it",
		func(ctx context.Context, c *fleet.Client, v fleet.VM) (fleet.VM, error) {
			return c.ResizeVM(ctx, v.ID, r)
		}, func(v fleet.VM) error { return resized(v, r) }}
	cmd := a.manyVMs(v)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if memory != "" {
			n, err := farm.ParseBytes(memory)
			if err != nil {
				return err
			}
			r.Memory = uint64(n)
		}
		if r == (fleet.VMResize{}) {
			return usage("--shape, --cpus or --memory", "no size is named")
		}
		return run(cmd, args)
	}
	cmd.Flags().StringVarP(&r.Shape, "shape", "s", "", "`SHAPE`, by name")
	cmd.Flags().IntVarP(&r.CPUs, "cpus", "c", 0, "vCPUs")
	cmd.Flags().StringVarP(&memory, "memory", "m", "", "memory: `SIZE` as 4G")
	return cmd
}

func (a *app) vmUpdate() *cobra.Command {
	var tags []string
	var expires string
	var set map[string]string
	var until *time.Time
	cmd := a.manyVMs(verb{"update", "Change tags of virtual machines, or when they expire", "is updated", "",
		func(ctx context.Context, c *fleet.Client, v fleet.VM) (fleet.VM, error) {
			u := fleet.VMUpdate{Expires: until}
			if len(set) > 0 {
				all := map[string]string{}
				maps.Copy(all, v.Tags)
				maps.Copy(all, set)
				maps.DeleteFunc(all, func(key, value string) bool { told, said := set[key]; return said && told == "" })
				u.Tags = &all
			}
			return c.UpdateVM(ctx, v.ID, u, v.Revision)
		}, nil})
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if set, err = parseTags(tags); err != nil {
			return err
		}
		if until = new(time.Time); expires != "never" {
			if until, err = parseExpiry(expires, time.Now()); err != nil {
				return err
			}
		}
		if len(set) == 0 && until == nil {
			return usage("--tag KEY=VALUE, or --expires 30d", "nothing is to be changed")
		}
		return run(cmd, args)
	}
	cmd.Flags().StringSliceVar(&tags, "tag", nil,
		"`KEY=VALUE` of your own; an empty value takes the tag away; give it several times")
	cmd.Flags().StringVar(&expires, "expires", "",
		"delete it at this `TIME`: 12h, 30d, 2027-01-31T18:00:00Z, or never, where the project lets VMs live so long")
	return cmd
}

func (a *app) vmRebuild() *cobra.Command {
	var r fleet.VMRebuild
	cmd := a.manyVMs(verb{"rebuild", "Make virtual machines anew, with fresh disks, under their names and addresses",
		"is to be rebuilt", "they run again", func(ctx context.Context, c *fleet.Client, v fleet.VM) (fleet.VM, error) {
			v, err := c.RebuildVM(ctx, v.ID, r)
			if err == nil {
				os.Remove(knownHosts(v.ID)) // its host key will be another one
			}
			return v, err
		}, nil})
	cmd.Flags().StringVarP(&r.Image, "image", "i", "",
		"`IMAGE`; without it the one that each has, as its name means now")
	return cmd
}
