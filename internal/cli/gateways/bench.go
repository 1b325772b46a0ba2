// Package gateways has the commands of gateways, by which directories of a host come into VMs.
package gateways

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/filebench"
	"github.com/grange-project/grange/internal/filebench/load"
)

type gatewayCommands struct{ *app.App }

// Commands are the commands of gateways.
func Commands(a *app.App) []*cobra.Command {
	gateway := &cobra.Command{Use: "gateway", Short: "Show and measure how directories of the host come into VMs"}
	c := gatewayCommands{a}
	gateway.AddCommand(list(a), c.benchCommand())
	return []*cobra.Command{gateway}
}

type benchFlags struct {
	config, dir, size, svg, image, user string
	time                                time.Duration
	files, rounds                       int
	show                                bool
}

func (a gatewayCommands) benchCommand() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure a directory in VMs by each gateway; auto chooses by it", Args: cobra.NoArgs,
		Long: "Measure how fast a directory of this host is in a VM, by each gateway that can serve it: one large\n" +
			"file is written and read, small files are created, asked for and deleted. Each gateway has a VM of\n" +
			"its own, in turns. What was written may still be in the host's memory: the gateway is measured, and\n" +
			"not the disk behind it.\n\n" +
			"What root measures is kept in the agent's state directory by the type of the directory's file system,\n" +
			"and binds whose gateway is auto go by it from then on. The measuring itself is done as another user,\n" +
			"who must be allowed to create files in the directory: virtiofs serves nothing of root. --show prints\n" +
			"all that is kept.",
		Example: "  grange gateway bench --dir /data/alice\n  grange gateway bench --dir /scratch --user alice --rounds 5 --svg files.svg\n" +
			"  grange gateway bench --show --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !f.show && os.Geteuid() != 0 {
				return a.benchAsUser(cmd.Context(), f)
			}
			c, err := app.ReadConfig(f.config, cmd.Flags().Changed("config"))
			if err != nil {
				return err
			}
			if f.show {
				return a.show(c, f)
			}
			return a.benchAsRoot(cmd.Context(), c, f)
		}}
	cmd.Flags().StringVar(&f.config, "config", app.DefaultConfig, "the agent's configuration `FILE`")
	cmd.Flags().StringVar(&f.dir, "dir", ".", "`DIR` to measure in, and whose file system the result is for")
	cmd.Flags().StringVar(&f.user, "user", "", "`USER` to measure as, for root (default: whose DIR is, or nobody where that is root)")
	cmd.Flags().StringVar(&f.image, "image", "micro", "`IMAGE` of the VMs, with grange-guest of this release")
	cmd.Flags().StringVar(&f.size, "size", "256M", "`SIZE` of the large file")
	cmd.Flags().IntVar(&f.files, "files", 1000, "number of small files, of 4K each")
	cmd.Flags().DurationVar(&f.time, "time", 10*time.Second, "duration of each measurement, at most")
	cmd.Flags().IntVar(&f.rounds, "rounds", 3, "number of rounds, of which the median is taken")
	cmd.Flags().StringVar(&f.svg, "svg", "", "draw the results to `FILE` as well")
	cmd.Flags().BoolVar(&f.show, "show", false, "print the results that were kept, and measure nothing")
	return cmd
}

// load is what the flags ask of the load.
func (f benchFlags) load() (o load.Options, err error) {
	size, err := farm.ParseBytes(f.size)
	if err != nil {
		return o, err
	}
	if size < farm.MiB || size > farm.TiB || f.time < 10*time.Millisecond || f.time > time.Hour || f.rounds < 1 ||
		f.rounds > 100 || f.files < 1 || f.files > 1_000_000 {
		return o, app.Usage("", "from 1M to 1T, 10ms to 1h, 1 to 100 rounds and 1 to 1000000 files")
	}
	return load.Options{Dir: target, Size: int64(size), Files: f.files, Time: f.time}, nil
}

func (f benchFlags) command() string {
	return fmt.Sprintf("grange gateway bench --dir %s --size %s --files %d --time %v --rounds %d", f.dir, f.size,
		f.files, f.time, f.rounds)
}

// show prints what is kept.
func (a gatewayCommands) show(c config.Agent, f benchFlags) error {
	k, err := filebench.ReadKept(c.StateDir)
	if err == nil && len(k.FileSystems) == 0 {
		err = &farm.Error{Kind: farm.NotFound, Code: filebench.CodeBench, Message: "nothing was measured on this host",
			Hint: "run `grange gateway bench` as root"}
	}
	if err != nil {
		return err
	}
	return a.print(f, inOrder(k))
}

// benchAsUser measures as who we are, and keeps nothing.
func (a gatewayCommands) benchAsUser(ctx context.Context, f benchFlags) error {
	o, err := f.load()
	if err != nil {
		return err
	}
	if f.user != "" {
		return app.Usage("leave it out", "--user is for root; others measure as themselves")
	}
	if f.dir, err = filepath.Abs(f.dir); err != nil {
		return err
	}
	m, err := a.measure(ctx, f, o)
	if err != nil {
		return err
	}
	if !a.JSON {
		fmt.Fprintln(a.Err, "not kept, and auto does not choose by it: what root measures is")
	}
	return a.print(f, []filebench.Measurement{m})
}

// benchAsRoot has another user measure, and keeps the result.
func (a gatewayCommands) benchAsRoot(ctx context.Context, c config.Agent, f benchFlags) (err error) {
	if _, err := f.load(); err != nil {
		return err
	}
	if f.dir, err = filepath.Abs(f.dir); err != nil {
		return err
	}
	m, err := a.measureAs(ctx, f)
	if err != nil {
		return err
	}
	k, err := filebench.ReadKept(c.StateDir)
	if err != nil {
		return err
	}
	k.FileSystems[m.FileSystem] = m
	a.KeepResults(filebench.KeptFile(c.StateDir), k)
	return a.print(f, []filebench.Measurement{m})
}

func inOrder(k filebench.Kept) (all []filebench.Measurement) {
	for _, name := range slices.Sorted(maps.Keys(k.FileSystems)) {
		all = append(all, k.FileSystems[name])
	}
	return all
}

func (a gatewayCommands) print(f benchFlags, all []filebench.Measurement) error {
	var tables []string
	for _, m := range all {
		tables = append(tables, filebench.Table(m))
	}
	return a.PrintResults(all, strings.Join(tables, "\n"), f.svg, func() string { return filebench.Picture(all) })
}
