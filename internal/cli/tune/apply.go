package tune

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hostfacts"
	"github.com/grange-project/grange/internal/hosttree"
	"github.com/grange-project/grange/internal/tuning"
	"github.com/grange-project/grange/internal/tuning/apply"
)

// applyFlags are what plan and apply are asked.
type applyFlags struct {
	choice
	root             string
	yes, wait, drain bool
}

// applyCommands are the commands that change a host's tuning, and take changes back.
type applyCommands struct{ *app.App }

func (a applyCommands) tuneApplyCommands() []*cobra.Command {
	return []*cobra.Command{a.tunePlan(), a.tuneApply(), a.tuneUndo(), a.tuneHistory(), a.tuneDrift()}
}

// What plan and apply do with the findings of a rule.
const (
	mendOnly = "fix only findings of this `RULE`"
	mendNot  = "do not fix findings of this `RULE`"
)

func (a applyCommands) tunePlan() *cobra.Command {
	var f applyFlags
	cmd := &cobra.Command{
		Use: "plan", Short: "Show what apply would change, as a diff", Args: cobra.NoArgs,
		Long: `Audit a host and print the changes that would fix the findings: every value, file, service,
module and kernel parameter, with its current state. Nothing is changed.`,
		Example: "  grange tune plan\n  grange tune plan --rule ksm-on-compute\n  grange tune plan --from node17.tar " +
			"--json",
		RunE: func(cmd *cobra.Command, _ []string) error { return inTree(f.root, a.plan(cmd.Context(), f)) },
	}
	f.choice.flags(cmd, mendOnly, mendNot)
	rootFlag(cmd, &f.root)
	app.FromFlag(cmd, &f.from)
	cmd.MarkFlagsMutuallyExclusive("from", "root")
	return cmd
}

func (a applyCommands) tuneApply() *cobra.Command {
	var f applyFlags
	cmd := &cobra.Command{
		Use: "apply", Short: "Fix what the audit found; undo all changes if one fails",
		Args: cobra.NoArgs,
		Long: "Audit this host, print the plan, ask for confirmation, and apply the plan. The previous\n" +
			"state is written to disk before anything changes, and each step is verified after it. If a\n" +
			"step fails, or on Ctrl-C, all steps are undone. `grange tune undo` undoes an apply, also one\n" +
			"that was killed.\n\n" +
			"Modules are reloaded, and memory is allocated for huge pages, only while no VM runs. With\n" +
			"--drain, the agent of this host starts no new VMs; the command waits until the last VM has\n" +
			"ended, applies the changes, and permits VMs again, after probing KVM. If the command is\n" +
			"killed, run it again: it undoes the incomplete steps and continues. With --wait, the command\n" +
			"only waits; keep new VMs away by other means.",
		Example: "  grange tune apply\n  grange tune apply --rule thp-policy --yes\n  grange tune apply --drain " +
			"--rule ept-off\n  grange tune apply --root ./node17 --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := Unheard(cmd.Context())
			defer stop()
			return inTree(f.root, a.apply(ctx, f))
		},
	}
	f.choice.flags(cmd, mendOnly, mendNot)
	rootFlag(cmd, &f.root)
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask for confirmation")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "if the plan requires it, wait until no VM runs")
	cmd.Flags().BoolVar(&f.drain, "drain", false,
		"if the plan requires it, start no new VMs, wait until none runs, and permit VMs again afterwards")
	cmd.MarkFlagsMutuallyExclusive("drain", "wait")
	cmd.MarkFlagsMutuallyExclusive("drain", "root")
	return cmd
}

func (a applyCommands) tuneUndo() *cobra.Command {
	var root string
	var force, drain bool
	cmd := &cobra.Command{
		Use: "undo [ID]", Short: "Undo the last apply, or a given one", Args: cobra.MaximumNArgs(1),
		Long: `Restore what an apply changed: values, files with their modes, files that did not exist,
services and modules. An apply or undo that was killed is undone from where it stopped.
Settings that were changed since are listed and kept, unless --force is given.`,
		Example: "  grange tune undo\n  grange tune undo 20260921T101500Z",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := Unheard(cmd.Context())
			defer stop()
			if drain {
				return inTree(root, a.undoDrained(ctx, strings.Join(args, ""), force))
			}
			return inTree(root, a.undo(ctx, root, strings.Join(args, ""), force))
		},
	}
	rootFlag(cmd, &root)
	cmd.Flags().BoolVar(&drain, "drain", false,
		"start no new VMs, wait until none runs, and permit VMs again afterwards")
	cmd.MarkFlagsMutuallyExclusive("drain", "root")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite settings that were changed since")
	return cmd
}

func (a applyCommands) tuneHistory() *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use: "history", Short: "List the changes that were applied, with time, user and result", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return inTree(root, a.history(root)) },
	}
	rootFlag(cmd, &root)
	return cmd
}

func (a applyCommands) tuneDrift() *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use: "drift", Short: "List settings that differ from what was applied", Args: cobra.NoArgs,
		Long: `Compare this host with the changes that were applied and not undone.

Exit status 0: all settings are as applied. 4: a setting differs.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return inTree(root, a.drift(cmd.Context(), root)) },
	}
	rootFlag(cmd, &root)
	return cmd
}

// Unheard is for what must not end between two steps when nobody listens any more: a pipe's reader may go first at
// ctrl-C, and a lost terminal is as good as ctrl-C.
func Unheard(ctx context.Context) (_ context.Context, stop func()) {
	signal.Ignore(syscall.SIGPIPE)
	hangUps := func() {}
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		ctx, hangUps = signal.NotifyContext(ctx, syscall.SIGHUP)
	}
	return ctx, func() { hangUps(); signal.Reset(syscall.SIGPIPE) }
}

// findingsAt audits a system. Of a live one, programs tell more than files.
func findingsAt(ctx context.Context, system apply.System, f applyFlags) ([]tuning.Finding, error) {
	if !system.Live() {
		return findingsOf(system.Root().FS(), f)
	}
	tree, err := hosttree.Live(ctx)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	return findingsOf(tree, f)
}

func findingsOf(files fs.FS, f applyFlags) ([]tuning.Finding, error) {
	h, err := hostfacts.Read(files)
	if err != nil {
		return nil, err
	}
	r, _, err := f.judge(h)
	return r.Findings(), err
}

func planAt(ctx context.Context, system apply.System, f applyFlags) (apply.Plan, error) {
	findings, err := findingsAt(ctx, system, f)
	if err != nil {
		return apply.Plan{}, err
	}
	return apply.NewPlan(ctx, system, findings)
}

// readPlan plans, and tells what stands in the way. Nothing of it is left behind, also when nobody listens any more.
func readPlan(ctx context.Context, f applyFlags) (p apply.Plan, blocked, err error) {
	ctx, stop := Unheard(ctx)
	defer stop()
	var system apply.System
	if f.from != "" {
		var free func()
		var findings []tuning.Finding
		if system, findings, free, err = recordedAt(ctx, f); err != nil {
			return p, nil, err
		}
		defer free()
		p, err = apply.NewPlan(ctx, system, findings)
	} else {
		if system, err = systemAt(f.root); err != nil {
			return p, nil, err
		}
		defer system.Root().Close()
		p, err = planAt(ctx, system, f)
	}
	if err != nil {
		return p, nil, err
	}
	return p, inTree(f.root, p.Ready(system)), nil
}

func (a applyCommands) plan(ctx context.Context, f applyFlags) error {
	p, blocked, err := readPlan(ctx, f)
	if err != nil {
		return err
	}
	if a.JSON {
		return output.Unsaid("the plan could not be printed", a.PrintJSON(planJSON(p, blocked)))
	}
	text := p.Text(tuning.Rules(), style(a.App).Width)
	if blocked != nil {
		message, hint := app.Explain(blocked)
		text += "\n" + a.fold("not now: ", message) + "  try: " + hint + "\n" // a command in it is for copying
	}
	_, err = io.WriteString(a.Out, text)
	return output.Unsaid("the plan could not be printed", err)
}

func (a applyCommands) fold(label, text string) string {
	return tuning.Fold(label, text, style(a.App).Width)
}

func (a applyCommands) apply(ctx context.Context, f applyFlags) error {
	system, err := systemAt(f.root)
	if err != nil {
		return err
	}
	defer system.Root().Close()
	if f.drain {
		return a.applyDrained(ctx, system, f)
	}
	if err := apply.Startable(system); err != nil {
		return err
	}
	p, err := a.agreedPlan(ctx, system, f, "")
	if err != nil {
		return err
	}
	return a.make(ctx, system, p, f)
}

// make makes a plan that was agreed to, audits again, and prints what became of it.
func (a applyCommands) make(ctx context.Context, system apply.System, p apply.Plan, f applyFlags) error {
	result := appliedJSON{Remaining: []remainingJSON{}}
	if len(p.Steps) > 0 {
		run, err := apply.Do(ctx, system, p, a.applyOptions())
		if err != nil {
			return err
		}
		result.ID, result.Phase, result.Steps = run.ID, string(run.Phase), len(p.Steps)
	}
	after, err := findingsAt(ctx, system, f)
	if err != nil {
		return err
	}
	for _, finding := range after {
		result.Remaining = append(result.Remaining, remainingOf(finding))
	}
	if a.JSON {
		err = a.PrintJSON(result)
	} else {
		_, err = io.WriteString(a.Out, a.appliedText(p, result, f.root))
	}
	if result.ID != "" {
		return output.Unsaid("applied as "+result.ID+", and that could not be printed", err)
	}
	return output.Unsaid("what the audit still finds could not be printed", err)
}

// appliedText returns what became of a plan. What a person has to do was in the plan; it is said again only after
// something was done.
func (a applyCommands) appliedText(p apply.Plan, result appliedJSON, root string) string {
	var b strings.Builder
	if result.ID != "" {
		fmt.Fprintf(&b, "applied as %s; `%s` takes it back\n", result.ID, withRoot("grange tune undo", root))
	}
	if slices.ContainsFunc(p.Steps, func(s apply.Step) bool { return s.Reboot }) {
		b.WriteString("the command line of the kernel counts from the next boot on\n")
	}
	switch {
	case len(result.Remaining) == 0:
		b.WriteString("the audit finds nothing more\n")
		return b.String()
	case result.ID == "":
		return b.String()
	}
	b.WriteString("the audit still finds:\n")
	for _, r := range result.Remaining {
		b.WriteString(a.fold("  ", fmt.Sprintf("%s, %s, %s: wanted %s, found %s", r.Rule, r.Severity, r.Where,
			r.Wanted, r.Got)))
		if r.Manual != "" {
			b.WriteString(a.fold("    by hand: ", r.Manual))
		}
	}
	return b.String()
}

// agreedPlan shows the plan and gets a yes for it, unless it is the one that was agreed to. Where it has to wait for
// VMs, the plan is made anew after, and when that is another one it is shown again.
func (a applyCommands) agreedPlan(ctx context.Context, system apply.System, f applyFlags, agreed string) (p apply.Plan,
	err error) {
	for {
		if p, agreed, err = a.agree(ctx, system, f, agreed); err != nil {
			return p, err
		}
		if !system.Live() {
			return p, nil
		}
		err = p.Ready(system)
		if own := new(farm.Error); !f.wait || !errors.As(err, &own) || own.Code != farm.CodeVMsRunning {
			return p, err
		}
		if err := apply.Await(ctx, system, a.tellVMs); err != nil {
			return p, err
		}
	}
}

// agree makes a plan, and where it is not the one that was agreed to shows it and gets a yes. text is what was agreed
// to then.
func (a applyCommands) agree(ctx context.Context, system apply.System, f applyFlags, agreed string) (p apply.Plan,
	text string, err error) {
	if p, err = planAt(ctx, system, f); err != nil {
		return p, "", err
	}
	if text = p.Text(tuning.Rules(), style(a.App).Width); text == agreed {
		return p, text, nil
	}
	if !a.JSON {
		if _, err := fmt.Fprintln(a.Out, text); err != nil {
			return p, text, output.Unsaid("nothing was changed: the plan could not be shown", err)
		}
	}
	if err := a.ready(p, system, f); err != nil && system.Live() {
		return p, text, err
	} else if err != nil {
		fmt.Fprintf(a.Err, "on the host itself this would not begin now: %v\n", err)
	}
	return p, text, a.ask(ctx, p, f)
}

// ready is what stands in the way of a plan but for VMs that --wait and --drain wait for.
func (a applyCommands) ready(p apply.Plan, system apply.System, f applyFlags) error {
	err := p.Ready(system)
	if own := new(farm.Error); (f.wait || f.drain) && errors.As(err, &own) && own.Code == farm.CodeVMsRunning {
		return nil
	}
	return err
}

func (a applyCommands) tellVMs(vms []apply.VM) {
	var names []string
	for _, v := range vms {
		names = append(names, v.String())
	}
	fmt.Fprintf(a.Err, "waiting for these VMs to end, keep new ones away: %s\n", strings.Join(names, ", "))
}

// ask gets a yes on a terminal.
func (a applyCommands) ask(ctx context.Context, p apply.Plan, f applyFlags) error {
	if f.yes || len(p.Steps) == 0 {
		return nil
	}
	return a.Confirm(ctx, "make these changes?", "nothing was changed", "look at the plan, then say --yes")
}

func (a applyCommands) applyOptions() apply.Options {
	return apply.Options{Who: apply.Me(), Tell: func(p apply.Progress) {
		verb, step := "", p.Step
		if p.Undo {
			verb, step = "take back: ", p.Step.Back()
		}
		fmt.Fprintf(a.Err, "%3d/%d  %s%s\n", p.N, p.Of, verb, step)
	}}
}

func (a applyCommands) undo(ctx context.Context, dir, id string, force bool) error {
	system, err := systemAt(dir)
	if err != nil {
		return err
	}
	defer system.Root().Close()
	run, err := apply.Undo(ctx, system, id, force, a.applyOptions())
	if err != nil {
		return err
	}
	return a.printUndone(run)
}

func (a applyCommands) printUndone(run *apply.Run) error {
	if a.JSON {
		return output.Unsaid(run.ID+" is undone, and that could not be printed", a.PrintJSON(runJSON(run)))
	}
	_, err := fmt.Fprintf(a.Out, "%s is undone: everything is as it was found\n", run.ID)
	return output.Unsaid(run.ID+" is undone, and that could not be printed", err)
}

func (a applyCommands) history(dir string) error {
	system, err := systemAt(dir)
	if err != nil {
		return err
	}
	defer system.Root().Close()
	runs, err := apply.History(system.Root())
	if err != nil {
		return err
	}
	if a.JSON {
		out := []historyJSON{}
		for _, r := range runs {
			out = append(out, runJSON(r))
		}
		return output.Unsaid("the history could not be printed", a.PrintJSON(out))
	}
	var b strings.Builder
	if len(runs) == 0 {
		b.WriteString("nothing was applied here\n")
	}
	for _, r := range runs {
		noun := "steps"
		if len(r.Plan.Steps) == 1 {
			noun = "step"
		}
		fmt.Fprintf(&b, "%-19s  %-8s  %3d %-5s  %s  %s\n", r.ID, r.Phase, len(r.Plan.Steps), noun, r.Who,
			strings.Join(r.Plan.Rules(), ", "))
		if r.Error != "" {
			fmt.Fprintf(&b, "    %s\n", r.Error)
		}
	}
	_, err = io.WriteString(a.Out, b.String())
	return output.Unsaid("the history could not be printed", err)
}

func (a applyCommands) drift(ctx context.Context, dir string) error {
	system, err := systemAt(dir)
	if err != nil {
		return err
	}
	defer system.Root().Close()
	drifted, err := apply.Drift(ctx, system)
	if err != nil {
		return err
	}
	if a.JSON {
		out := []driftJSON{}
		for _, d := range drifted {
			out = append(out, driftedJSON(d))
		}
		err = a.PrintJSON(out)
	} else {
		var b strings.Builder
		for _, d := range drifted {
			fmt.Fprintln(&b, d)
		}
		if len(drifted) == 0 {
			b.WriteString("everything is as it was set\n")
		}
		_, err = io.WriteString(a.Out, b.String())
	}
	if err == nil && len(drifted) > 0 {
		return app.ExitError{Status: app.ExitDrift}
	}
	return output.Unsaid("the drift could not be printed", err)
}
