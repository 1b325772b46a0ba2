package tune

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hosttree"
	"github.com/grange-project/grange/internal/sleep"
	"github.com/grange-project/grange/internal/tuning"
	"github.com/grange-project/grange/internal/tuning/slow"
	"github.com/grange-project/grange/internal/tuning/verify"
)

// whySlow is what `grange tune why-slow` says.
type whySlow struct {
	VM string `json:"vm"`
	slow.Report
	Problems []string `json:"problems"` // of where it runs
	Findings []string `json:"findings"` // of the audit, of this VM and of the host
}

func (a tuneCommands) whySlowCommand() *cobra.Command {
	span := 5 * time.Second
	cmd := &cobra.Command{
		Use: "why-slow VM", Short: "Say what a virtual machine loses its time to",
		Long: `Look at a running virtual machine of this host twice, and say where the time of its vCPUs went: the
guest's own code, QEMU, the host's kernel, waiting for a CPU; which exits KVM counted; swap and disks. What costs
most comes first, with what to do. Then come what "tune verify" finds of the VM, and what "tune audit"
finds of it and of the host. Nothing is changed. Needs root to see all of it.`,
		Example: "  grange tune why-slow grange-1a2b3c4d\n  grange tune why-slow web --for 30s --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if span < time.Second || span > time.Hour {
				return app.Usage("for example 5s", "--for %v makes no sense", span)
			}
			out, err := a.whySlow(cmd.Context(), args[0], span)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(out)
			}
			return out.print(a.App)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().DurationVar(&span, "for", span, "time between the two looks")
	return cmd
}

func (a tuneCommands) whySlow(ctx context.Context, name string, span time.Duration) (out whySlow, err error) {
	tree, err := hosttree.Live(ctx)
	if err != nil {
		return out, err
	}
	defer tree.Close()
	host, machines, err := readSides(tree)
	if err != nil {
		return out, err
	}
	report, _ := verifySides(host, machines)
	if report, err = only(report, []string{name}, "this host"); err != nil {
		return out, err
	}
	vm := report.VMs[0]
	out = whySlow{VM: vm.Name, Problems: problems(report)}
	i := slices.IndexFunc(machines.Processes, func(p farm.Process) bool { return p.PID == vm.PID })
	if i < 0 {
		return out, &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoVM,
			Message: "no process of " + vm.Name + " is to be seen",
			Hint:    "`grange tune verify` lists those that run; only root sees all"}
	}
	if out.Report, err = lookTwice(ctx, tree, machines.Processes[i], span); err != nil {
		return out, err
	}
	out.Findings, err = findingsFor(host, vm.Name)
	return out, err
}

func lookTwice(ctx context.Context, tree *hosttree.Tree, p farm.Process, span time.Duration) (slow.Report, error) {
	first, err := slow.Read(tree, p, time.Now())
	if err != nil {
		return slow.Report{}, err
	}
	if err := sleep.For(ctx, span); err != nil {
		return slow.Report{}, err
	}
	second, err := slow.Read(tree, p, time.Now())
	if err != nil {
		return slow.Report{}, fmt.Errorf("the second look: %w", err)
	}
	return slow.Compare(p, first, second), nil
}

func problems(r verify.Report) []string {
	out := []string{}
	for _, p := range r.Problems {
		out = append(out, fmt.Sprintf("%s: %s", p.Kind, p.Message))
	}
	return out
}

// findingsFor are those of one VM and of the host: not those of other VMs.
func findingsFor(host farm.HostFacts, vm string) ([]string, error) {
	r, _, err := choice{}.judge(host)
	if err != nil {
		return nil, err
	}
	out := []string{}
	for _, f := range r.Findings() {
		if f.Severity >= tuning.Warning && (f.Where == "VM "+vm || !strings.HasPrefix(f.Where, "VM ")) {
			out = append(out, fmt.Sprintf("%s, %s: %s → %s", f.Rule, f.Where, f.Got, f.Wanted))
		}
	}
	return out, nil
}

func (w whySlow) print(a *app.App) error {
	text := w.Text(w.VM)
	for _, part := range []struct {
		head  string
		lines []string
	}{{"where it runs (`grange tune verify`):", w.Problems}, {"the audit (`grange tune audit`):", w.Findings}} {
		if len(part.lines) > 0 {
			text += part.head + "\n  " + strings.Join(part.lines, "\n  ") + "\n"
		}
	}
	_, err := fmt.Fprint(a.Out, text)
	return err
}
