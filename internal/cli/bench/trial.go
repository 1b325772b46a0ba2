package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/bench"
	benchlive "github.com/grange-project/grange/internal/bench/live"
	"github.com/grange-project/grange/internal/bench/work"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/cli/tune"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/topology"
	"github.com/grange-project/grange/internal/trial"
	"github.com/grange-project/grange/internal/trial/live"
	"github.com/grange-project/grange/internal/tuning"
	"github.com/grange-project/grange/internal/tuning/apply"
)

type trialFlags struct {
	runFlags
	workloads []string
	on        string
	profile   string
	key       string
}

func (a benchCommands) trialCommand() *cobra.Command {
	f := trialFlags{}
	cmd := &cobra.Command{
		Use: "trial [RULE|/PATH=VALUE]", Short: "Try a change of this host: make it, measure, take it back, in turns",
		Long: `Find out what a change is worth on this host. The change is what the audit's RULE would have, or a
value of /sys or /proc/sys, also of a module's parameter. In each round the VMs work without the change, with it,
with it and without it. The change is accepted only if a gain is shown at some size of VMs, and a loss at
none; all intervals hold together, and one trial in a hundred of a change that does nothing says more than
that. It is taken back in any case, and ` + "`grange tune apply`" + ` makes it for good.

A trial that is cut short is gone on with when the same command is given again; what it has made is taken
back first, after kill -9 and power loss too. Without an argument, the last trial is shown.

Nobody else may use the host: other VMs are refused. Needs root, an agent and an image, or --on host.`,
		Example: "  grange trial thp-policy --size 4x8,1x32 --workload memory,pages\n" +
			"  grange trial /sys/module/kvm_intel/parameters/ept=0 --size 4x8 --program hs='hepscore --short'\n" +
			"  grange trial",
		Args: cobra.MaximumNArgs(1), ValidArgs: ruleIDs(),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.named = cmd.Flags().Changed("config")
			if len(args) == 0 {
				return a.showTrial(f)
			}
			ctx, stop := tune.Unheard(cmd.Context())
			defer stop()
			return a.trial(ctx, f, args[0])
		}}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.workloads, "workload", nil, "`WORKLOADS` of grange bench run (default: all)")
	f.members(a, cmd)
	flags.IntVar(&f.rounds, "rounds", 14, "rounds; fewer than it takes to show something are refused")
	flags.StringVar(&f.on, "on", "vm", "who works: vm, or host for the same on the host itself, in as many parts")
	flags.StringVar(&f.profile, "profile", "", "where the change is accepted, add the evidence to this profile `FILE`")
	flags.StringVar(&f.key, "key", "", "the `KEY` of the profile that it is evidence for")
	cmd.MarkFlagsRequiredTogether("profile", "key")
	app.Complete(cmd, "workload", work.Names)
	app.Complete(cmd, "on", func() []string { return sides })
	return cmd
}

var sides = []string{"vm", "host"}

func ruleIDs() (all []string) {
	for _, r := range tuning.Rules() {
		all = append(all, r.ID)
	}
	return all
}

func (a benchCommands) showTrial(f trialFlags) error {
	c, err := app.ReadConfig(f.config, f.named)
	if err != nil {
		return err
	}
	k, err := live.ReadKept(c.StateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return &farm.Error{Kind: farm.NotFound, Code: trial.CodeTrial, Message: "no change was tried on this host",
			Hint: "`grange trial RULE`; `grange tune audit` lists what there is to try"}
	}
	if err != nil {
		return err
	}
	if k.Made != "" {
		fmt.Fprintf(a.Err, "the trial was cut short, and the change may still be made: give the same command again\n")
	}
	return a.printVerdict(k.Judge())
}

func (a benchCommands) trial(ctx context.Context, f trialFlags, change string) error {
	c, err := app.ReadConfig(f.config, f.named)
	if err != nil {
		return err
	}
	system, err := apply.Live()
	if err != nil {
		return err
	}
	defer system.Root().Close()
	h := &live.Host{System: system, Gate: tune.AgentGate(a.Client()), Apply: apply.Options{Who: apply.Me()},
		Each: f.each, OnHost: f.on == "host", Waiting: func(left []string) {
			fmt.Fprintf(a.Err, "waiting for these VMs to end: %s\n", strings.Join(left, ", "))
		}}
	unlock, err := live.Lock(c.StateDir)
	if err != nil {
		return err
	}
	defer unlock()
	k, err := live.ReadKept(c.StateDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	h.Note = func(made string) error { k.Made = made; return live.Keep(c.StateDir, k) }
	if err := h.Recover(ctx, k.Made); err != nil {
		return fmt.Errorf("what the last trial made is not taken back: %w", err)
	}
	wanted, err := a.prepare(ctx, f, change, h)
	if err != nil {
		return err
	}
	if !k.Same(wanted) || len(k.Rounds) == f.rounds { // one that was seen to its end is not prolonged
		k = wanted
	} else {
		fmt.Fprintf(a.Err, "going on behind round %d\n", len(k.Rounds))
	}
	if err := a.field(ctx, f, h, c); err != nil {
		return err
	}
	done, err := trial.Run(ctx, h, k, trial.Options{Rounds: f.rounds, Tell: func(s string) { fmt.Fprintln(a.Err, s) },
		Keep: func(r []trial.Round) error { k.Rounds = r; return live.Keep(c.StateDir, k) }})
	if err = errors.Join(err, h.Close()); err != nil {
		return err
	}
	v := done.Judge()
	if f.profile != "" && v.Accept {
		if err := f.evidence(v, time.Now()); err != nil {
			return err
		}
	}
	return a.printVerdict(v)
}

// findings are what a change would mend.
func findings(ctx context.Context, system apply.System, change string) ([]tuning.Finding, error) {
	if path, value, ok := strings.Cut(change, "="); ok && strings.HasPrefix(path, "/") {
		return []tuning.Finding{live.Setting(path, value)}, nil
	}
	if !slices.Contains(ruleIDs(), change) {
		return nil, app.UnknownWord("RULE", change, ruleIDs())
	}
	return tune.FindingsOf(ctx, system, change)
}

// prepare says what is to be tried, and refuses what shows nothing, changes nothing, or would disturb others.
func (a benchCommands) prepare(ctx context.Context, f trialFlags, change string,
	h *live.Host) (k trial.Kept, err error) {
	if !slices.Contains(sides, f.on) {
		return k, app.UnknownWord("--on", f.on, sides)
	}
	if h.Findings, err = findings(ctx, h.System, change); err != nil {
		return k, err
	}
	p, err := h.Plan(ctx)
	if err != nil {
		return k, err
	}
	if len(p.Steps) == 0 {
		return k, refused("nothing would change: the host is so already",
			"`grange tune audit` lists what is to be mended")
	}
	for _, s := range p.Steps {
		if s.Reboot && s.Kind == apply.StepBoot {
			return k, refused("the change takes effect at the next boot only", "make it with `grange tune apply`, "+
				"reboot, and compare `grange bench run` of before and after")
		}
	}
	vms, err := h.System.VMs()
	if err != nil {
		return k, err
	}
	if len(vms) > 0 {
		return k, refused(fmt.Sprintf("%s on this host", farm.Count(len(vms), "VM")+" run"),
			"empty the host first: `grange host drain HOST`")
	}
	return f.kept(ctx, a, change)
}

func refused(message, hint string) error {
	return &farm.Error{Kind: farm.Conflict, Code: trial.CodeTrial, Message: message, Hint: hint}
}

// kept is a trial with no round yet.
func (f trialFlags) kept(ctx context.Context, a benchCommands, change string) (k trial.Kept, err error) {
	f.budget, f.narrow = f.each, 1
	cpus := a.free
	if f.on == "host" {
		cpus = func(ctx context.Context) (int, error) { all, err := online(ctx); return all.Len(), err }
	}
	o, err := a.options(ctx, f.runFlags, f.workloads, cpus)
	if err != nil {
		return k, err
	}
	k = trial.Kept{Version: 1, Change: change, Began: time.Now().UTC().Truncate(time.Second),
		Options: fmt.Sprintf("--on %s --rounds %d --memory %s --each %v%s", f.on, f.rounds, f.memory, f.each, f.vms())}
	facts, tree, err := app.HostFacts(ctx, "")
	if err != nil {
		return k, err
	}
	tree.Close()
	k.Host = bench.StateOf(facts)
	for _, s := range o.Sizes {
		for _, w := range o.Workloads {
			k.Points = append(k.Points, trial.Point{Size: s, Workload: w})
		}
	}
	if least := trial.Fewest(len(k.Points)); f.rounds < least {
		return k, refused(fmt.Sprintf("%d rounds show nothing at %s", f.rounds, farm.Count(len(k.Points), "point")),
			fmt.Sprintf("take %d or more, or fewer workloads and sizes", least))
	}
	return k, nil
}

// online are the CPUs of this host.
func online(ctx context.Context) (farm.CPUSet, error) {
	tree, err := app.HostTree(ctx, "")
	if err != nil {
		return farm.CPUSet{}, err
	}
	defer tree.Close()
	t, err := topology.Read(tree)
	return t.Online, err
}

// field says who works.
func (a benchCommands) field(ctx context.Context, f trialFlags, h *live.Host, c config.Agent) error {
	if !h.OnHost {
		members, err := a.members(ctx, c, f.runFlags, func() {})
		h.Field = members.Field
		return err
	}
	cpus, err := online(ctx)
	if err != nil {
		return err
	}
	own, err := app.OwnPath()
	guest := cmp.Or(c.GuestFile, filepath.Join(filepath.Dir(own), "grange-guest"))
	h.Field = func(ctx context.Context, s bench.Size) (bench.Team, error) {
		return benchlive.HostField(ctx, s, cpus.List(), guest)
	}
	return err
}

// evidence adds what was shown to a profile of the site.
func (f trialFlags) evidence(v trial.Verdict, now time.Time) error {
	text, err := os.ReadFile(f.profile)
	if err != nil {
		return err
	}
	var says []string
	for _, e := range v.Effects {
		if e.Shown == trial.Gain {
			says = append(says, fmt.Sprintf("%s: %.1f %% (%.1f to %.1f)", e.Point, 100*(e.Ratio.Median-1),
				100*(e.Ratio.Low-1), 100*(e.Ratio.High-1)))
		}
	}
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	text = fmt.Appendf(text, "\n[[source]]\nkeys = [%q]\nname = %q\nurl = \"\"\nsays = %q\n", f.key,
		fmt.Sprintf("grange trial %s on %s, %s", v.Change, name, now.Format(time.DateOnly)),
		fmt.Sprintf("%s. Gains: %s.", v.Why, strings.Join(says, "; ")))
	if _, err := tuning.ParseProfile(text, f.profile); err != nil {
		return err
	}
	return atomicfile.Write(f.profile, text, 0o644)
}

// printVerdict prints what a trial came to.
func (a benchCommands) printVerdict(v trial.Verdict) error {
	if a.JSON {
		return a.PrintJSON(v)
	}
	w := output.NewColumns(a.Out)
	fmt.Fprintln(w, "WORKLOAD\tSIZE\tWITH/WITHOUT\tINTERVAL\tSHOWN")
	for _, e := range v.Effects {
		interval := "not known"
		if e.Ratio.Known() {
			interval = fmt.Sprintf("%.4f to %.4f", e.Ratio.Low, e.Ratio.High)
		}
		w.Row(e.Workload, e.Size, fmt.Sprintf("%.4f", e.Ratio.Median), interval, e.Shown)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	word := "not accepted"
	if v.Accept {
		word = "accepted"
	}
	_, err := fmt.Fprintf(a.Out, "%s: %s, after %s: %s\n", v.Change, word, farm.Count(v.Rounds, "round"), v.Why)
	return err
}
