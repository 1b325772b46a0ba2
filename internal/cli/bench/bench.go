// Package bench has the commands that measure what VMs cost on a host.
package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/bench"
	"github.com/grange-project/grange/internal/bench/live"
	"github.com/grange-project/grange/internal/bench/work"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/execjob"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/power"
	"github.com/grange-project/grange/internal/tuning"
)

type benchCommands struct{ *app.App }

// Commands are the commands of benchmarks.
func Commands(a *app.App) []*cobra.Command {
	group := &cobra.Command{Use: "bench", Short: "Measure what VMs cost on this host"}
	c := benchCommands{a}
	group.AddCommand(c.runCommand(), c.showCommand(), c.gateCommand(), c.scoresCommand(),
		c.costCommand())
	return []*cobra.Command{group, c.trialCommand()}
}

type runFlags struct {
	config, image, memory string
	pages, numa, threads  string
	sizes, programs       []string
	each, budget          time.Duration
	narrow                float64
	rounds                int
	csv, svg              string
	named                 bool
}

const (
	usualBudget = 2 * time.Minute
	usualNarrow = 0.005
	usualRounds = 100
)

func (a benchCommands) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "run [WORKLOAD...]", Short: "Compare VMs of several sizes with the host itself",
		Long: "Fill the host with VMs of a size, as in production, and have all of them do the same work at once;\n" +
			"compare that with the host itself on the same CPUs. Both sides take turns, host, VMs, VMs, host, until\n" +
			"the interval of the median ratio is narrow enough, or the time is over. Outliers count. Where the\n" +
			"interval has 1 in it, no difference is shown.\n\nWorkloads: " + about() + "\n\n" +
			"With --program, a command of the site, which prints a number on its last line, or JSON with \"score\";\n" +
			"it runs in the VM and on the host, and $GRANGE_BENCH_THREADS says on how many threads. The host should\n" +
			"be drained: what else runs there is measured as well. Results are kept as bench.json in the agent's\n" +
			"state directory. Needs root, an agent and an image.",
		Example: "  grange bench run\n  grange bench run memory pages --size 1x4,2x2,4x1 --memory 2G\n" +
			"  grange bench run --program db12='python3 /srv/db12.py' --size 4x8 --page-size 1G -o db12.csv",
		ValidArgs: work.Names(),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.named = cmd.Flags().Changed("config")
			return a.run(cmd.Context(), f, args)
		}}
	f.members(a, cmd)
	flags := cmd.Flags()
	flags.DurationVar(&f.budget, "budget", usualBudget, "time for each workload at each size; twice that where it shows nothing yet")
	flags.Float64Var(&f.narrow, "narrow", usualNarrow, "half of the interval of the ratio that is narrow enough")
	flags.IntVar(&f.rounds, "rounds", usualRounds, "rounds of each workload at each size, at most")
	flags.StringVarP(&f.csv, "output", "o", "", "write the results to `FILE` as CSV, too")
	flags.StringVar(&f.svg, "svg", "", "draw the results to `FILE`, too")
	return cmd
}

// members gives a command the flags of who works.
func (f *runFlags) members(a benchCommands, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.sizes, "size", nil,
		"`VMSxCPUS` of each VM: 4x8,2x16 (default: one VM of all free CPUs, and VMs of one CPU on all)")
	flags.StringVar(&f.memory, "memory", "512M", "memory of each VM")
	flags.StringVar(&f.pages, "page-size", "", "pages of the VMs, as of grange exec")
	flags.StringVar(&f.numa, "numa", "", "NUMA nodes of the VMs, as of grange exec")
	flags.StringVar(&f.threads, "thread-policy", "", "threads of the VMs, as of grange exec")
	flags.StringArrayVar(&f.programs, "program", nil, "a workload of the site: `NAME=COMMAND` (repeatable)")
	flags.DurationVar(&f.each, "each", time.Second, "duration of a measurement; a program takes its own")
	flags.StringVar(&f.image, "image", "", "`IMAGE` of the VMs (default: the agent's)")
	flags.StringVar(&f.config, "config", app.DefaultConfig, "the agent's configuration `FILE`")
	cmd.RegisterFlagCompletionFunc("image", a.CompleteImages)
}

func about() string {
	var all []string
	for _, w := range work.Workloads {
		all = append(all, fmt.Sprintf("\n  %-8s %s", w.Name, w.About))
	}
	return strings.Join(all, "")
}

func (a benchCommands) showCommand() *cobra.Command {
	var file, svg string
	var all bool
	cmd := &cobra.Command{Use: "show", Short: "Show what was measured on this host", Args: cobra.NoArgs,
		Example: "  grange bench show\n  grange bench show --all --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, measurements, err := measured(file, cmd)
			if err != nil {
				return err
			}
			if !all {
				measurements = measurements[len(measurements)-1:]
			}
			return a.print(measurements, svg)
		}}
	cmd.Flags().BoolVar(&all, "all", false, "all measurements that are kept, the oldest first")
	cmd.Flags().StringVar(&svg, "svg", "", "draw the last one to `FILE`, too")
	cmd.Flags().StringVar(&file, "config", app.DefaultConfig, "the agent's configuration `FILE`")
	return cmd
}

// measured is what is kept of this host, one measurement at least, and the configuration that says where.
func measured(file string, cmd *cobra.Command) (config.Agent, []bench.Measurement, error) {
	c, err := app.ReadConfig(file, cmd.Flags().Changed("config"))
	if err != nil {
		return c, nil, err
	}
	k, err := bench.ReadKept(c.StateDir)
	if err == nil && len(k.Measurements) == 0 {
		err = &farm.Error{Kind: farm.NotFound, Code: bench.CodeBench, Message: "nothing was measured on this host",
			Hint: "run `grange bench run`"}
	}
	return c, k.Measurements, err
}

func (a benchCommands) print(all []bench.Measurement, svg string) error {
	var tables []string
	for _, m := range all {
		tables = append(tables, bench.Table(m))
	}
	return a.PrintResults(all, strings.Join(tables, "\n"), svg, func() string { return bench.Picture(all[len(all)-1]) })
}

func (a benchCommands) run(ctx context.Context, f runFlags, workloads []string) error {
	c, err := app.ReadConfig(f.config, f.named)
	if err != nil {
		return err
	}
	o, err := a.options(ctx, f, workloads, a.free)
	if err != nil {
		return err
	}
	m := bench.Measurement{Time: time.Now().UTC().Truncate(time.Second), Command: f.command(workloads, o.Sizes),
		Each: f.each, Options: strings.TrimSpace(f.vms())}
	emulated := false
	members, err := a.members(ctx, c, f, func() { emulated = true })
	if err != nil {
		return err
	}
	meter := power.Find("/sys")
	o.Field, o.Power = members.Field, meter.Watch
	var failed error
	m.Results, failed = bench.Run(ctx, o)
	if len(m.Results) == 0 {
		return failed
	}
	h, tree, err := app.HostFacts(context.WithoutCancel(ctx), "")
	if err != nil {
		return err
	}
	tree.Close()
	m.Host = bench.StateOf(h)
	m.Host.Emulated = emulated
	if meter != nil {
		m.Host.Power = meter.Source
	}
	state, err := tuning.State(h)
	if err != nil {
		fmt.Fprintf(a.Err, "how the host is tuned cannot be told: %v\n", err)
	}
	m.Host.Tuning, m.Host.Findings = state.Digest, state.Places()
	if failed != nil {
		m.Ended = failed.Error()
	}
	return errors.Join(a.keep(c, m, f), failed)
}

// keep keeps, writes and prints a measurement.
func (a benchCommands) keep(c config.Agent, m bench.Measurement, f runFlags) error {
	k, err := bench.ReadKept(c.StateDir)
	if err != nil {
		fmt.Fprintf(a.Err, "earlier results cannot be read, and are replaced: %v\n", err)
		k = bench.Kept{Version: 1}
	}
	k.Add(m)
	a.KeepResults(bench.KeptFile(c.StateDir), k)
	if f.csv != "" {
		if err := os.WriteFile(f.csv, []byte(bench.CSV(m)), 0o644); err != nil {
			return err
		}
	}
	return a.print([]bench.Measurement{m}, f.svg)
}

// options are what a command line asks for.
func (a benchCommands) options(ctx context.Context, f runFlags, workloads []string,
	cpus func(context.Context) (int, error)) (o bench.Options, err error) {
	switch {
	case os.Geteuid() != 0:
		return o, &farm.Error{Kind: farm.Denied, Code: farm.CodeUsage, Message: "only root can measure this host",
			Hint: "run it as root: it works on the CPUs of its VMs, beside them"}
	case f.each < 10*time.Millisecond || f.budget < f.each || f.rounds < 1 || !(f.narrow > 0):
		return o, app.Usage("see `grange bench run --help`", "at least --each 10ms, a budget of that, one round, and an "+
			"interval that is not 0")
	}
	o = bench.Options{Each: f.each, Unit: work.Unit, Short: work.Short, Now: time.Now,
		Limits: bench.Limits{Budget: f.budget, Narrow: f.narrow, Rounds: f.rounds},
		Tell:   func(text string) { fmt.Fprintln(a.Err, text) }}
	if o.Workloads, err = chosen(workloads, f.programs); err != nil {
		return o, err
	}
	memory, err := farm.ParseBytes(f.memory)
	if err != nil {
		return o, err
	}
	free, err := cpus(ctx)
	if err != nil {
		return o, err
	}
	sizes := f.sizes
	if len(sizes) == 0 {
		sizes = usual(free)
	}
	for _, text := range sizes {
		s, err := bench.ParseSize(text)
		if err != nil {
			return o, err
		}
		if s.VMs*s.CPUs > free {
			return o, &farm.Error{Kind: farm.Conflict, Code: bench.CodeBench,
				Message: fmt.Sprintf("size %v needs %s, and %d are free", s, farm.Count(s.VMs*s.CPUs, "CPU"), free),
				Hint:    "choose a smaller one, or empty the host first: `grange host drain HOST`"}
		}
		s.Memory = memory
		o.Sizes = append(o.Sizes, s)
	}
	return o, nil
}

// chosen are the workloads: those that are named, or all; and the site's own.
func chosen(names, programs []string) ([]string, error) {
	for _, n := range names {
		if !slices.Contains(work.Names(), n) {
			return nil, app.UnknownWord("WORKLOAD", n, work.Names())
		}
	}
	all := slices.Clone(names)
	if len(names)+len(programs) == 0 {
		all = work.Names()
	}
	for _, p := range programs {
		name, line, ok := strings.Cut(p, "=")
		if !ok || name == "" || line == "" {
			return nil, app.Usage("write NAME=COMMAND", "invalid --program %q", p)
		}
		all = append(all, work.Program+p)
	}
	return all, nil
}

// free is how many CPUs VMs may have now. An agent that has just been started says none until it knows what runs.
func (a benchCommands) free(ctx context.Context) (int, error) {
	h, err := a.Client().Host(ctx)
	for told := ""; err == nil && h.Recovering != ""; h, err = a.Client().Host(ctx) {
		if told != h.Recovering {
			told = h.Recovering
			fmt.Fprintln(a.Err, "waiting:", told)
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(recoverPause):
		}
	}
	if err != nil {
		return 0, err
	}
	free, err := farm.ParseCPUSet(h.Free)
	if err == nil && free.Len() == 0 {
		err = &farm.Error{Kind: farm.Conflict, Code: bench.CodeBench, Message: "no CPU of this host is free",
			Hint: "empty the host first: `grange host drain HOST`"}
	}
	return free.Len(), err
}

// recoverPause is how often an agent that is being started is asked.
const recoverPause = 500 * time.Millisecond

// usual are the sizes where none is named: the whole host as one VM, and as many of one CPU.
func usual(free int) []string {
	if free == 1 {
		return []string{"1x1"}
	}
	return []string{fmt.Sprintf("1x%d", free), fmt.Sprintf("%dx1", free)}
}

// members are how VMs and what runs beside them are started.
func (a benchCommands) members(ctx context.Context, c config.Agent, f runFlags, emulated func()) (live.Config, error) {
	own, err := app.OwnPath()
	if err != nil {
		return live.Config{}, err
	}
	guest := c.GuestFile
	if guest == "" {
		guest = filepath.Join(filepath.Dir(own), "grange-guest")
	}
	image := f.image
	if image == "" {
		g, err := a.Client().Grant(ctx)
		if err != nil {
			return live.Config{}, err
		}
		image = g.Image
	}
	out := live.Config{Launcher: execjob.Launcher{Socket: a.Socket, Grange: own, GuestFile: guest, Image: image},
		Emulated: emulated}
	for name, value := range map[string]string{"--page-size": f.pages, "--numa": f.numa, "--thread-policy": f.threads} {
		if value != "" {
			out.Options = append(out.Options, name, value)
		}
	}
	return out, nil
}

// command is by what the same is measured again.
func (f runFlags) command(workloads []string, sizes []bench.Size) string {
	words := append([]string{"grange bench run"}, workloads...)
	for _, p := range f.programs {
		words = append(words, "--program", quoted(p))
	}
	var all []string
	for _, s := range sizes {
		all = append(all, s.String())
	}
	words = append(words, "--size", strings.Join(all, ","), "--memory", f.memory, "--each", f.each.String())
	if f.budget != usualBudget {
		words = append(words, "--budget", f.budget.String())
	}
	if f.narrow != usualNarrow {
		words = append(words, "--narrow", fmt.Sprint(f.narrow))
	}
	if f.rounds != usualRounds {
		words = append(words, "--rounds", fmt.Sprint(f.rounds))
	}
	return strings.Join(words, " ") + f.vms()
}

// vms are the options of how VMs are made, each with a space before it.
func (f runFlags) vms() (text string) {
	for _, o := range [][2]string{{"--page-size", f.pages}, {"--numa", f.numa}, {"--thread-policy", f.threads},
		{"--image", f.image}} {
		if o[1] != "" {
			text += " " + o[0] + " " + o[1]
		}
	}
	return text
}

// quoted is a word as a shell takes it.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
