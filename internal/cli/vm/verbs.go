package vm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
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
func (a vmCommands) manyVMs(v verb) *cobra.Command {
	var project string
	var w waitFlags
	cmd := &cobra.Command{Use: v.name + " VM...", Short: v.short, Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeFleetVMs,
		Long:              v.short + ".\n\nVM is PROJECT/NAME, NAME, an ID, or a pattern such as 'web-*'.",
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

func (a vmCommands) doVMs(ctx context.Context, v verb, refs []string, project string, w waitFlags) error {
	c, err := a.Fleet()
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
				app.PrintError(a.Err, last)
			}
			last = fmt.Errorf("%s: %w", fullName(vm), err)
			continue
		}
		if !a.JSON {
			fmt.Fprintf(a.Out, "%s %s\n", fullName(vm), v.done)
		}
		done = append(done, after)
	}
	done, err = w.until(ctx, a.App, c, done)
	if w.wait && v.came != nil {
		for _, vm := range done {
			err = errors.Join(err, v.came(vm))
		}
	}
	if a.JSON {
		last = errors.Join(last, a.PrintJSON(append([]fleet.VM{}, done...)))
	}
	if last == nil {
		last = err
	}
	return last
}

func (a vmCommands) vmStart() *cobra.Command {
	return a.manyVMs(verb{"start", "Start stopped virtual machines", "is to start", "the VMs run",
		func(ctx context.Context, c *fleet.Client, v fleet.VM) (fleet.VM, error) {
			return c.VMs.Start(ctx, v.ID)
		}, nil})
}

func (a vmCommands) vmRestart() *cobra.Command {
	return a.manyVMs(verb{"restart", "Restart virtual machines", "is to restart", "the VMs run again",
		func(ctx context.Context, c *fleet.Client, v fleet.VM) (fleet.VM, error) {
			return c.VMs.Restart(ctx, v.ID)
		}, nil})
}

func (a vmCommands) vmDelete() *cobra.Command {
	return a.manyVMs(verb{"delete", "Delete virtual machines with their disks and leases", "is to be deleted",
		"the VMs are deleted", func(ctx context.Context, c *fleet.Client, v fleet.VM) (fleet.VM, error) {
			v, err := c.VMs.Delete(ctx, v.ID)
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

func (a vmCommands) vmResize() *cobra.Command {
	var r fleet.VMResize
	var memory string
	v := verb{"resize", "Resize virtual machines on their hosts; this restarts them",
		"is to be resized", "the VMs run with the new size",
		func(ctx context.Context, c *fleet.Client, v fleet.VM) (fleet.VM, error) {
			return c.VMs.Resize(ctx, v.ID, r)
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
			return app.Usage("--shape, --cpus or --memory", "no size is named")
		}
		return run(cmd, args)
	}
	cmd.Flags().StringVarP(&r.Shape, "shape", "s", "", "name of the `SHAPE`")
	cmd.Flags().IntVarP(&r.CPUs, "cpus", "c", 0, "number of vCPUs")
	cmd.Flags().StringVarP(&memory, "memory", "m", "", "`SIZE` of the memory, for example 4G")
	return cmd
}

func (a vmCommands) vmUpdate() *cobra.Command {
	var tags, groups []string
	var expires string
	var none bool
	var set map[string]string
	var until *time.Time
	cmd := a.manyVMs(verb{"update", "Change tags, expiry and security groups of virtual machines", "is updated", "",
		func(ctx context.Context, c *fleet.Client, v fleet.VM) (fleet.VM, error) {
			u := fleet.VMUpdate{Expires: until}
			if len(set) > 0 {
				all := map[string]string{}
				maps.Copy(all, v.Tags)
				maps.Copy(all, set)
				maps.DeleteFunc(all, func(key, value string) bool { told, said := set[key]; return said && told == "" })
				u.Tags = &all
			}
			if len(groups) > 0 || none {
				u.SecurityGroups = &groups
			}
			return c.VMs.Update(ctx, v.ID, u, v.Revision)
		}, nil})
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if set, err = app.ParseTags(tags); err != nil {
			return err
		}
		if until = new(time.Time); expires != "never" {
			if until, err = app.ParseExpiry(expires, time.Now()); err != nil {
				return err
			}
		}
		if len(set) == 0 && until == nil && len(groups) == 0 && !none {
			return app.Usage("--tag KEY=VALUE, --expires 30d or --security-group NAME", "nothing is to be changed")
		}
		return run(cmd, args)
	}
	cmd.Flags().StringSliceVar(&tags, "tag", nil,
		"tag to set, `KEY=VALUE`; an empty value removes the tag (repeatable)")
	cmd.Flags().StringVar(&expires, "expires", "",
		"`TIME` at which the VM is deleted: 12h, 30d, 2027-01-31T18:00:00Z, or never if the project permits it")
	cmd.Flags().StringSliceVar(&groups, "security-group", nil,
		"security `GROUP` that the VM is in from now on, instead of the present ones (repeatable)")
	cmd.Flags().BoolVar(&none, "no-security-group", false, "take the VM out of its security groups")
	cmd.MarkFlagsMutuallyExclusive("security-group", "no-security-group")
	return cmd
}

func (a vmCommands) vmRebuild() *cobra.Command {
	var r fleet.VMRebuild
	cmd := a.manyVMs(verb{"rebuild", "Recreate virtual machines with new disks; names and addresses stay",
		"is to be rebuilt", "the VMs run again",
		func(ctx context.Context, c *fleet.Client, v fleet.VM) (fleet.VM, error) {
			v, err := c.VMs.Rebuild(ctx, v.ID, r)
			if err == nil {
				os.Remove(knownHosts(v.ID)) // its host key will be another one
			}
			return v, err
		}, nil})
	cmd.Flags().StringVarP(&r.Image, "image", "i", "",
		"`IMAGE` to use (default: each VM's image, by its current name)")
	return cmd
}
