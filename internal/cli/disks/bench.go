// Package disks has the commands of a host's disks: what they are worth, and what nobody owns.
package disks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/chart"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/diskbench"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lvm"
)

type diskCommands struct{ *app.App }

// Commands are the commands of disks.
func Commands(a *app.App) []*cobra.Command {
	disk := &cobra.Command{Use: "disk", Short: "Measure a host's disks, and clean them"}
	c := diskCommands{a}
	disk.AddCommand(c.benchCommand(), c.cleanCommand())
	return []*cobra.Command{disk}
}

type benchFlags struct {
	config, dir, size, svg string
	time                   time.Duration
	rounds                 int
	show                   bool
}

// kept is a benchmark as it lies beside the host's other facts.
type kept struct {
	Version int                `json:"version"`
	Time    time.Time          `json:"time"`
	Command string             `json:"command"`
	Kernel  string             `json:"kernel"`
	Results []diskbench.Median `json:"results"`
	Verdict diskbench.Verdict  `json:"verdict"`
	Options map[string]any     `json:"options"`
	Choices []diskbench.Choice `json:"choices"`
}

// keptFile is below state_dir.
const keptFile = "disk-bench.json"

func (a diskCommands) benchCommand() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure the choices for disks of VMs by fio, and recommend one", Args: cobra.NoArgs,
		Long: "Measure what the disks of VMs can be on this host: a file through the host's page cache (the cache\n" +
			"mode writeback), past it (none) by native I/O and by io_uring, and volumes of the volume group and\n" +
			"the thin pool of [areas], if there are any. Patterns: write, rewrite, read, re-read, random read\n" +
			"and random write of 4 KiB and 256 KiB; all but the re-read cold. The re-read does not count in\n" +
			"the recommendation: of writeback it is the page cache. QEMU itself is not measured, nor the modes of\n" +
			"root disks.\n\n" +
			"The results are kept as " + keptFile + " in the agent's state directory; --show prints them. Needs\n" +
			"fio, and root for a cold page cache.",
		Example: "  grange disk bench\n  grange disk bench --size 8G --time 30s --rounds 5 --svg disks.svg\n" +
			"  grange disk bench --show --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := app.ReadConfig(f.config, cmd.Flags().Changed("config"))
			if err != nil {
				return err
			}
			return a.bench(cmd.Context(), c, f)
		}}
	cmd.Flags().StringVar(&f.config, "config", app.DefaultConfig, "the agent's configuration `FILE`")
	cmd.Flags().StringVar(&f.dir, "dir", "", "`DIR` to measure in (default: that of the disks of jobs' VMs)")
	cmd.Flags().StringVar(&f.size, "size", "1G", "`SIZE` of the file; less than the host's memory leaves reads in caches of the device")
	cmd.Flags().DurationVar(&f.time, "time", 5*time.Second, "duration of each measurement, at most")
	cmd.Flags().IntVar(&f.rounds, "rounds", 3, "number of rounds, of which the median is taken")
	cmd.Flags().StringVar(&f.svg, "svg", "", "draw the results to `FILE` as well")
	cmd.Flags().BoolVar(&f.show, "show", false, "print the results that were kept, and measure nothing")
	return cmd
}

func (a diskCommands) bench(ctx context.Context, c config.Agent, f benchFlags) error {
	file := filepath.Join(c.StateDir, keptFile)
	var k kept
	var err error
	if f.show {
		k, err = readKept(file)
	} else {
		k, err = a.measure(ctx, c, f)
	}
	if err != nil {
		return err
	}
	if !f.show {
		a.KeepResults(file, k)
	}
	return a.PrintResults(k, table(k), f.svg, func() string { return picture(k) })
}

func readKept(file string) (k kept, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return k, &farm.Error{Kind: farm.NotFound, Code: diskbench.CodeBench, Message: "nothing was measured on this host",
			Hint: "run `grange disk bench`", Err: err}
	}
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	return k, err
}

func (a diskCommands) measure(ctx context.Context, c config.Agent, f benchFlags) (k kept, err error) {
	size, err := farm.ParseBytes(f.size)
	switch {
	case err != nil:
		return k, err
	case size < farm.MiB || f.time < 10*time.Millisecond || f.rounds < 1 || f.rounds > 100:
		return k, app.Usage("", "at least 1M, 10ms and 1 round; at most 100 rounds")
	}
	dir := f.dir
	if dir == "" {
		dir = c.Areas.Jobs.Path
	}
	work, err := os.MkdirTemp(dir, ".bench-")
	if err != nil {
		return k, err
	}
	defer os.RemoveAll(work)
	choices, remove, err := choicesOf(ctx, filepath.Join(work, "file"), c.Areas.Jobs, size)
	defer func() { err = errors.Join(err, remove()) }()
	if err != nil {
		return k, err
	}
	all, err := diskbench.Run(ctx, choices, diskbench.Options{Size: size, Time: f.time, Rounds: f.rounds,
		Tell: func(done, of int, what string) { fmt.Fprintf(a.Err, "%3d of %d  %s\n", done+1, of, what) }})
	if err != nil {
		return k, err
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	medians := diskbench.Medians(all)
	return kept{Version: 1, Time: time.Now().UTC().Truncate(time.Second), Kernel: strings.TrimSpace(string(kernel)),
		Command: fmt.Sprintf("grange disk bench --size %v --time %v --rounds %d", size, f.time, f.rounds),
		Results: medians, Verdict: diskbench.Recommend(medians), Choices: choices,
		Options: map[string]any{"dir": dir, "size": size, "seconds": f.time.Seconds(), "rounds": f.rounds}}, nil
}

// choicesOf are what a host has: files, and volumes that are made for it, which remove removes.
func choicesOf(ctx context.Context, file string, area config.Area, size farm.Bytes) (all []diskbench.Choice,
	remove func() error, err error) {
	all = []diskbench.Choice{
		{Name: "file, writeback", Path: file, Engine: "psync"},
		{Name: "file, none, native", Path: file, Engine: "libaio", Direct: true},
		{Name: "file, none, io_uring", Path: file, Engine: "io_uring", Direct: true}}
	var l lvm.LVM
	var made []lvm.Volume
	remove = func() (err error) {
		for _, v := range made {
			err = errors.Join(err, l.Remove(context.WithoutCancel(ctx), v))
		}
		return err
	}
	for _, p := range []struct {
		name  string
		place lvm.Place
		ok    bool
	}{{"lvm", lvm.Place{Group: area.VolumeGroup}, area.VolumeGroup != ""},
		{"thin", lvm.Place{Group: area.VolumeGroup, Pool: area.ThinPool}, area.ThinPool != ""}} {
		if !p.ok {
			continue
		}
		v, err := l.Create(ctx, p.place, fmt.Sprintf("grange.bench-%d.%s", os.Getpid(), p.name), size, "bench", "bench")
		if err != nil {
			return all, remove, err
		}
		made = append(made, v)
		all = append(all, diskbench.Choice{Name: p.name + ", none, native", Path: v.Path(), Device: true,
			Engine: "libaio", Direct: true})
	}
	return all, remove, nil
}

// table is the results for people: a line a pattern, a column a choice, in MB/s and, of 4 KiB, operations a second.
func table(k kept) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s, kernel %s\n\n", k.Command, k.Time.Format(time.RFC3339), k.Kernel)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "PATTERN\tBLOCK")
	for _, c := range k.Choices {
		fmt.Fprintf(w, "\t%s", strings.ToUpper(c.Name))
	}
	fmt.Fprintln(w)
	for _, p := range diskbench.Patterns() {
		fmt.Fprintf(w, "%s\t%v", p.Name, p.Block)
		for _, c := range k.Choices {
			fmt.Fprintf(w, "\t%s", cell(k, c.Name, p))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	fmt.Fprintf(&b, "\nMB/s; IOPS for 4K. %s.\n", k.Verdict)
	return b.String()
}

func cell(k kept, choice string, p diskbench.Pattern) string {
	for _, m := range k.Results {
		if m.Choice != choice || m.Pattern != p.Name || m.Block != uint64(p.Block) {
			continue
		}
		if p.Block < 64*farm.KiB {
			return fmt.Sprintf("%.1f (%.0f IOPS)", m.Rate/1e6, m.IOPS)
		}
		return fmt.Sprintf("%.1f", m.Rate/1e6)
	}
	return "-"
}

func picture(k kept) string {
	var bars []chart.Bar
	for _, p := range diskbench.Patterns() {
		for _, c := range k.Choices {
			for _, m := range k.Results {
				if m.Choice == c.Name && m.Pattern == p.Name && m.Block == uint64(p.Block) {
					bars = append(bars, chart.Bar{Group: p.String(), Name: c.Name, Value: m.Rate,
						Text: fmt.Sprintf("%.1f MB/s", m.Rate/1e6)})
				}
			}
		}
	}
	return chart.Bars(k.Command, bars)
}
