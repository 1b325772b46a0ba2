// Package filesystems has the command of file systems that are mounted on hosts and used by VMs.
package filesystems

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/mounts"
)

// Commands are the commands of mounted file systems.
func Commands(a *app.App) []*cobra.Command {
	mount := &cobra.Command{Use: "mount", Short: "Show and drain network file systems that VMs use"}
	mount.AddCommand(list(a), drain(a), resume(a))
	return []*cobra.Command{mount}
}

func list(a *app.App) *cobra.Command {
	return app.LocalFlag(&cobra.Command{Use: "list", Short: "List network file systems, and how many VMs use each",
		Long: `List the network file systems that the server's configuration declares: how many hosts have
each mounted, how many clients it is made for, how many VMs of jobs are behind them, and
whether it is drained.

Without a server, or with --local, list those that are mounted on this host, as the kernel's
table has them, how many of the VMs that you may see have directories of each, and which are
drained. No file system is asked: the list comes while servers hang.`,
		Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			if !a.Here(cmd) {
				return listFleet(cmd.Context(), a)
			}
			all, err := listHost(cmd.Context(), a)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(all)
			}
			return write(a.Out, all)
		}})
}

func listFleet(ctx context.Context, a *app.App) error {
	c, err := a.Fleet()
	if err != nil {
		return err
	}
	all, err := c.FileSystems.List(ctx)
	if err != nil {
		return err
	}
	return app.Table[fleet.FileSystem]{None: "the server's configuration declares no file systems",
		Head: "NAME\tCLIENTS\tBUDGET\tUSED BY\tDRAINED\tNOTE", Line: fleetLine}.Print(a, all)
}

func fleetLine(f fleet.FileSystem) []any {
	budget, drained := "-", "-"
	if f.Budget > 0 {
		budget = fmt.Sprint(f.Budget)
	}
	if f.Budget > 0 && f.Clients > f.Budget {
		budget += ", exceeded"
	}
	if f.Drain != nil {
		drained = "since " + f.Drain.Since.Local().Format("2006-01-02 15:04")
	}
	used := fmt.Sprintf("%s behind %s", farm.Count(f.VMs, "VM"), farm.Count(f.Clients, "client"))
	return []any{f.Name, f.Clients, budget, used, drained, app.Dash(f.Note)}
}

func listHost(ctx context.Context, a *app.App) ([]used, error) {
	table, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer table.Close()
	mounted, err := mounts.Networked(table)
	if err != nil {
		return nil, err
	}
	vms, err := a.Client().VMs(ctx)
	if err != nil {
		return nil, err
	}
	drains, err := a.Client().FileSystems().Drains(ctx)
	if err != nil {
		return nil, err
	}
	return count(mounted, vms, drains), nil
}

// used is a file system and who uses it.
type used struct {
	Source string   `json:"source"`
	Type   string   `json:"type"`
	Points []string `json:"mount_points"`
	VMs    int      `json:"vms"`
	Drains []string `json:"drains,omitempty"` // by name
	mounts []mounts.Mount
}

// count returns each file system once, however often it is mounted, with the VMs that have directories of it.
func count(mounted []mounts.Mount, vms []api.VM, drains []api.FileSystemDrain) []used {
	all := []used{}
	for _, m := range mounted {
		i := slices.IndexFunc(all, func(u used) bool { return u.mounts[0].Same(m) })
		if i < 0 {
			i = len(all)
			all = append(all, used{Source: m.Source, Type: m.Type})
		}
		all[i].mounts = append(all[i].mounts, m)
		if !slices.Contains(all[i].Points, m.Point) {
			all[i].Points = append(all[i].Points, m.Point)
		}
	}
	for i := range all {
		for _, vm := range vms {
			if slices.ContainsFunc(vm.Binds, all[i].has) {
				all[i].VMs++
			}
		}
		for _, d := range drains {
			if slices.ContainsFunc(all[i].mounts, mounts.Match(d.Match).Has) {
				all[i].Drains = append(all[i].Drains, d.Name)
			}
		}
	}
	return all
}

func (u used) has(b api.BoundBy) bool {
	f := b.FileSystem
	return f != nil && u.mounts[0].Same(mounts.Mount{Type: f.Type, Source: f.Source, Device: f.Device})
}

func write(w io.Writer, all []used) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no network file systems")
		return err
	}
	t := output.NewColumns(w)
	fmt.Fprintln(t, "SOURCE\tTYPE\tMOUNTED AT\tVMS\tDRAINED")
	for _, u := range all {
		t.Row(u.Source, u.Type, strings.Join(u.Points, ", "), u.VMs, app.Dash(strings.Join(u.Drains, ", ")))
	}
	return t.Flush()
}
