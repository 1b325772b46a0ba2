package host

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning/compare"
)

const compareLong = "Compare two recorded hosts, or a recorded host with this host, and report what prevents VMs\n" +
	"of the first host from moving to the second: a different processor, missing processor flags,\n" +
	"an older QEMU; and, for each VM of the first host, what prevents its move. Record a host\n" +
	"with `grange host record`. A recording made inside a VM shows which processor flags of its\n" +
	"host the guest lacks.\n\n" +
	"Exit status 4: VMs with CPU mode host-model could not move."

func (a hostCommands) hostCompareCommand() *cobra.Command {
	return &cobra.Command{
		Use: "compare FROM [TO]", Short: "Report what prevents VMs from moving between two hosts", Long: compareLong,
		Example: "  grange host compare old.tar new.tar\n  grange host compare old.tar          # with this host\n  " +
			"grange host compare host.tar guest.tar  # flags the guest lacks",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			hosts := [2]farm.HostFacts{}
			for i, from := range append(args, "")[:2] {
				h, tree, err := app.HostFacts(cmd.Context(), from)
				if err != nil {
					return err
				}
				tree.Close()
				hosts[i] = h
			}
			return a.showComparison(compare.Hosts(hosts[0], hosts[1]))
		},
	}
}

func (a hostCommands) showComparison(c compare.Comparison) error {
	if a.JSON {
		if err := a.PrintJSON(comparisonJSON(c)); err != nil {
			return err
		}
	} else {
		a.printComparison(c)
	}
	if c.Stopped("host-model") {
		return app.ExitError{Status: app.ExitUnlike}
	}
	return nil
}

func (a hostCommands) printComparison(c compare.Comparison) {
	for _, d := range c.Differences {
		effect := "a remark"
		if len(d.Stops) > 0 {
			effect = "stops VMs with CPU mode " + strings.Join(d.Stops, ", ")
		}
		fmt.Fprintf(a.Out, "%s: %s → %s\n    %s: %s\n", d.What, farm.Printable(app.OrNone(d.From)),
			farm.Printable(app.OrNone(d.To)), effect, d.Why)
	}
	for _, m := range c.VMs {
		fmt.Fprintf(a.Out, "VM %s, CPU mode %s\n", farm.Printable(m.VM), farm.Printable(app.OrNone(m.CPUMode)))
		for _, obstacle := range m.Obstacle {
			fmt.Fprintf(a.Out, "    cannot move: %s\n", farm.Printable(obstacle))
		}
		if len(m.Obstacle) == 0 {
			fmt.Fprintln(a.Out, "    nothing known against moving it")
		}
	}
	if len(c.Differences) == 0 {
		fmt.Fprintln(a.Out, "nothing of the processor, QEMU and kernel differs")
	}
	if len(c.Missing) > 0 {
		fmt.Fprintf(a.Out, "flags missing in the second: %s\n", strings.Join(c.Missing, " "))
	}
	if len(c.Additional) > 0 {
		fmt.Fprintf(a.Out, "flags only in the second: %s\n", strings.Join(c.Additional, " "))
	}
}

type moveJSON struct {
	VM        string   `json:"vm"`
	CPUMode   string   `json:"cpu_mode"`
	Obstacles []string `json:"obstacles"`
}

type differenceJSON struct {
	What  string   `json:"what"`
	From  string   `json:"from"`
	To    string   `json:"to"`
	Stops []string `json:"stops"`
	Why   string   `json:"why"`
}

func comparisonJSON(c compare.Comparison) any {
	out := struct {
		Missing     []string         `json:"missing_flags"`
		Additional  []string         `json:"additional_flags"`
		Differences []differenceJSON `json:"differences"`
		VMs         []moveJSON       `json:"vms"`
	}{orEmpty(c.Missing), orEmpty(c.Additional), []differenceJSON{}, []moveJSON{}}
	for _, d := range c.Differences {
		out.Differences = append(out.Differences, differenceJSON{d.What, d.From, d.To, orEmpty(d.Stops), d.Why})
	}
	for _, m := range c.VMs {
		out.VMs = append(out.VMs, moveJSON{m.VM, m.CPUMode, orEmpty(m.Obstacle)})
	}
	return out
}

// orEmpty makes an empty list [] in JSON and not null.
func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
