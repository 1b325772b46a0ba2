// Package filesystems has the command of file systems that are mounted on a host and used by VMs.
package filesystems

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/mounts"
)

// Commands are the commands of mounted file systems.
func Commands(a *app.App) []*cobra.Command {
	mount := &cobra.Command{Use: "mount", Short: "Show network file systems that VMs of this host use"}
	mount.AddCommand(list(a))
	return []*cobra.Command{mount}
}

func list(a *app.App) *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List network file systems of this host, and how many VMs use each",
		Long: `List the network file systems that are mounted on this host, as the kernel's table has them,
and how many of the VMs that you may see have directories of each. No file system is asked:
the list comes while servers hang.`,
		Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			table, err := os.Open("/proc/self/mountinfo")
			if err != nil {
				return err
			}
			defer table.Close()
			mounted, err := mounts.Networked(table)
			if err != nil {
				return err
			}
			vms, err := a.Client().VMs(cmd.Context())
			if err != nil {
				return err
			}
			all := count(mounted, vms)
			if a.JSON {
				return a.PrintJSON(all)
			}
			return write(a.Out, all)
		}}
}

// used is a file system and who uses it.
type used struct {
	Source string   `json:"source"`
	Type   string   `json:"type"`
	Points []string `json:"mount_points"`
	VMs    int      `json:"vms"`
}

// count returns each file system once, however often it is mounted, with the VMs that have directories of it.
func count(mounted []mounts.Mount, vms []api.VM) []used {
	all := []used{}
	for _, m := range mounted {
		i := slices.IndexFunc(all, func(u used) bool { return u.Source == m.Source && u.Type == m.Type })
		if i < 0 {
			i = len(all)
			all = append(all, used{Source: m.Source, Type: m.Type})
		}
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
	}
	return all
}

func (u used) has(b api.BoundBy) bool {
	return b.FileSystem != nil && b.FileSystem.Source == u.Source && b.FileSystem.Type == u.Type
}

func write(w io.Writer, all []used) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no network file systems")
		return err
	}
	t := output.NewColumns(w)
	fmt.Fprintln(t, "SOURCE\tTYPE\tMOUNTED AT\tVMS")
	for _, u := range all {
		t.Row(u.Source, u.Type, strings.Join(u.Points, ", "), u.VMs)
	}
	return t.Flush()
}
