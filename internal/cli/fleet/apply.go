package fleet

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/farmfile"
	"github.com/grange-project/grange/internal/wire"
)

// farmFlags say which file, and how it is brought.
type farmFlags struct {
	file  string
	prune bool
	plan  string
}

func (f *farmFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.file, "file", "f", "",
		"farm `FILE`, described in docs/guide/cells.md; - reads standard input")
	cmd.Flags().BoolVar(&f.prune, "prune", false,
		"delete objects that are not in the file, of the kinds that are in it")
	if err := cmd.MarkFlagRequired("file"); err != nil {
		panic(err)
	}
}

// farmCommands are the commands of the farm's file, and of nova's.
type farmCommands struct{ *app.App }

func (a farmCommands) diffCommand() *cobra.Command {
	var f farmFlags
	var status bool
	cmd := &cobra.Command{Use: "diff -f FILE", Short: "Show what a farm file would change",
		Args: cobra.NoArgs,
		Long: "Compare a farm file with the farm, and print what `grange apply` would change: cells,\n" +
			"projects, shapes, networks, groups, users, grants and settings, key by key, and the projects\n" +
			"whose new VMs would go to other cells or to none. It changes nothing.\n\n" +
			"The last line of the output is a command that applies exactly these changes, and changes\n" +
			"nothing if other changes would result by then.",
		Example: "  grange diff -f cells.toml\n  grange diff -f cells.toml --prune",
		RunE: func(cmd *cobra.Command, _ []string) error {
			done, err := a.bring(cmd, f, true)
			if err != nil {
				return err
			}
			if a.JSON {
				err = a.PrintJSON(done)
			} else {
				a.printApplied(done, f)
			}
			if err == nil && status && len(done.Changes) > 0 {
				return app.ExitError{Status: app.ExitDiffers}
			}
			return err
		}}
	f.register(cmd)
	cmd.Flags().BoolVar(&status, "exit-code", false, "exit with status 3 if there are changes")
	return cmd
}

func (a farmCommands) applyCommand() *cobra.Command {
	var f farmFlags
	var dry bool
	cmd := &cobra.Command{Use: "apply -f FILE", Short: "Apply a farm file", Args: cobra.NoArgs,
		Long: `Create and update cells, projects, shapes, networks, groups, users, grants and settings from
a file, all of them or none. Without --prune, objects that are not in the file are not
changed. Objects that VMs or hosts still need are not deleted, and running VMs stay where
they are.`,
		Example: "  grange apply -f cells.toml --dry-run\n  grange apply -f cells.toml --plan 6c1f0e0c9e0a7d21\n" +
			"  grange export | sed 's/geneva-1/geneva-a/' | grange diff -f -",
		RunE: func(cmd *cobra.Command, _ []string) error {
			done, err := a.bring(cmd, f, dry)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(done)
			}
			a.printApplied(done, f)
			return nil
		}}
	f.register(cmd)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what would be changed, as grange diff does, and change nothing")
	cmd.Flags().StringVar(&f.plan, "plan", "",
		"apply only if the changes are still those of this `PLAN`, which grange diff printed")
	return cmd
}

// bring reads the file and hands it to the server.
func (a farmCommands) bring(cmd *cobra.Command, f farmFlags, dry bool) (fleet.Applied, error) {
	read, err := readFarm(cmd, f.file)
	if err != nil {
		return fleet.Applied{}, err
	}
	c, err := a.Fleet()
	if err != nil {
		return fleet.Applied{}, err
	}
	return c.Apply(cmd.Context(), fleet.ApplyRequest{Farm: wire.Farm(read), DryRun: dry, Prune: f.prune, Plan: f.plan})
}

// maxFarmFile is how much of a farm file is read; farmfile.Parse refuses less.
const maxFarmFile = 16 << 20

func readFarm(cmd *cobra.Command, file string) (farm.Farm, error) {
	in, name := cmd.InOrStdin(), "standard input"
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return farm.Farm{}, &farm.Error{Kind: farm.Invalid, Code: farm.CodeUsage, Message: err.Error(),
				Hint: "name a farm file with -f; `grange export` writes one"}
		}
		defer opened.Close()
		in, name = opened, file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxFarmFile))
	if err != nil {
		return farm.Farm{}, err
	}
	return farmfile.Parse(text, name)
}

// printApplied shows changes as a diff, what they mean for people, and what to do next.
func (a farmCommands) printApplied(done fleet.Applied, f farmFlags) {
	signs := map[string]string{"create": "+", "change": "~", "delete": "-"}
	count := map[string]int{}
	for _, c := range done.Changes {
		count[c.Op]++
		fmt.Fprintf(a.Out, "%s %s\n", signs[c.Op], strings.TrimSpace(c.Kind+" "+c.Name))
		for _, d := range c.Details {
			fmt.Fprintf(a.Out, "    %s\n", farm.Printable(d))
		}
	}
	if len(done.Effects) > 0 && done.DryRun {
		fmt.Fprintln(a.Out, "\nFor whom:")
		for _, e := range done.Effects {
			fmt.Fprintf(a.Out, "  %s\n", farm.Printable(e))
		}
	}
	switch {
	case len(done.Changes) == 0:
		fmt.Fprintln(a.Out, "no changes: the farm is as the file says")
	case done.DryRun:
		again := "grange apply -f " + f.file
		if f.prune {
			again += " --prune"
		}
		fmt.Fprintf(a.Out, "\n%d to make, %d to change, %d to delete. Exactly this: %s --plan %s\n", count["create"],
			count["change"], count["delete"], again, done.Plan)
	default:
		fmt.Fprintf(a.Out, "%d made, %d changed, %d deleted\n", count["create"], count["change"], count["delete"])
	}
}

func (a farmCommands) exportCommand() *cobra.Command {
	return &cobra.Command{Use: "export", Short: "Write the farm as a farm file", Args: cobra.NoArgs,
		Long: "Write the farm's cells, projects, shapes, networks, groups, users, grants and settings to\n" +
			"standard output, as a file for `grange apply`. Hosts, VMs and tokens are not included.",
		Example: "  grange export > cells.toml",
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, _ []string) error {
			all, err := c.Export(ctx)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(all)
			}
			read, err := wire.ParseFarm(all)
			if err != nil {
				return err
			}
			text, err := farmfile.Format(read)
			if err != nil {
				return err
			}
			_, err = output.RawOf(a.Out).Write(text)
			return err
		})}
}

// cellImportFlags say where the words of nova are.
type cellImportFlags struct {
	nova, usual, projects string
	all                   []string
	rename                map[string]string
}

func (a farmCommands) cellImport() *cobra.Command {
	var f cellImportFlags
	cmd := &cobra.Command{Use: "import", Short: "Write a farm file from nova.conf's cells_default and cells_projects",
		Args: cobra.NoArgs,
		Long: "Write a farm file that assigns projects to cells as OpenStack does with CERN's cell filter\n" +
			"(target_cell_project). Nothing is changed: review the file, then apply it with\n" +
			"`grange apply`. Inconsistencies in the two options are reported on standard error.",
		Example: "  grange cell import --nova /etc/nova/nova.conf > cells.toml\n" +
			"  grange cell import --cells-default=cellA,cellB --cells-projects='cellE:UUID1;UUID2,cellF:UUID3' " +
			"--cells cellA,cellB,cellE,cellF,cellG",
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, warnings, err := f.read()
			if err != nil {
				return err
			}
			m.All, m.Rename = f.all, f.rename
			made, more, err := m.Farm()
			if err != nil {
				return err
			}
			for _, w := range append(warnings, more...) {
				fmt.Fprintf(a.Err, "grange: note: %s\n", output.Visible(w))
			}
			if a.JSON {
				return a.PrintJSON(wire.Farm(made))
			}
			text, err := farmfile.Format(made)
			if err != nil {
				return err
			}
			_, err = output.RawOf(a.Out).Write(text)
			return err
		}}
	cmd.Flags().StringVar(&f.nova, "nova", "", "`FILE` with the two options, for example /etc/nova/nova.conf")
	cmd.Flags().StringVar(&f.usual, "cells-default", "",
		"cells of projects that have no cells of their own: `CELL,CELL`")
	cmd.Flags().StringVar(&f.projects, "cells-projects", "",
		"cells reserved for projects: `CELL:PROJECT;PROJECT,CELL:PROJECT`")
	cmd.Flags().StringSliceVar(&f.all, "cells", nil,
		"all existing `CELLS`; those that neither option names are disabled in nova, and are written as closed")
	cmd.Flags().StringToStringVar(&f.rename, "rename", nil, "rename projects or cells: `UUID=NAME`")
	return cmd
}

func (f cellImportFlags) read() (farmfile.CellMap, []string, error) {
	if f.nova == "" {
		if f.usual == "" && f.projects == "" {
			return farmfile.CellMap{}, nil, app.Usage("--nova /etc/nova/nova.conf, or --cells-default and --cells-projects",
				"there is nothing to import")
		}
		return farmfile.CellMap{Default: f.usual, Projects: f.projects}, nil, nil
	}
	if f.usual != "" || f.projects != "" {
		return farmfile.CellMap{}, nil,
			app.Usage("leave --cells-default and --cells-projects out", "--nova says both already")
	}
	text, err := os.ReadFile(f.nova)
	if err != nil {
		return farmfile.CellMap{}, nil, app.Usage("name a file with --nova", "%v", err)
	}
	return farmfile.ReadNova(text)
}
