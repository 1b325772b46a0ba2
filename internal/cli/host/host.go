package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/chart"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/wire"
)

// hostCommands are the commands of hosts: this one, recorded ones, and those of the fleet.
type hostCommands struct{ *app.App }

func (a hostCommands) hostCommand() *cobra.Command {
	host := &cobra.Command{Use: "host", Short: "Show, record and compare hosts; manage the hosts of a fleet"}
	host.AddCommand(a.hostShowCommand(), a.hostRecordCommand(), a.hostCompareCommand())
	host.AddCommand(fitCommands(a).hostFitCommand())
	host.AddCommand(a.fleetHostCommands()...)
	return host
}

const hostShowLong = `Draw the host's sockets, NUMA nodes, cores and threads, and what runs on each thread. Below,
print how the host is configured for virtual machines: huge pages, page merging, hardware
page tables, CPU frequency, swap, versions.

Free memory is what the agent can still grant. If no agent runs, the host is read directly,
and what runs on it is not named. With HOST, show a host of the fleet as the server records
it.`

func (a hostCommands) hostShowCommand() *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use:   "show [HOST]",
		Short: "Draw the host's CPUs, what runs on them, and the host's tuning", Long: hostShowLong,
		Args: cobra.MaximumNArgs(1),
		Example: "  grange host show\n  grange host show --from host.tar.gz\n  ssh node17 grange host " +
			"record -o - | grange host show --from - --json",
		ValidArgsFunction: a.CompleteHosts,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return a.showFleetHost(cmd.Context(), args[0])
			}
			return a.showHost(cmd.Context(), from)
		},
	}
	app.FromFlag(cmd, &from)
	return cmd
}

func (a hostCommands) showHost(ctx context.Context, from string) error {
	var agent *agentJSON
	if from == "" {
		answer, err := a.askAgent(ctx)
		switch {
		case err == nil:
			agent = &answer
		case errors.Is(err, api.ErrNoAgent):
			fmt.Fprintln(a.Err, "no agent runs here: this is the host as it is, without VMs of grange")
		default:
			return err
		}
	}
	h, tree, err := app.HostFacts(ctx, from)
	if err != nil {
		return err
	}
	defer tree.Close()
	if a.JSON {
		return a.PrintJSON(hostToJSON(h, tree.Name, agent))
	}
	return a.drawHost(h, agent)
}

// agentJSON is all that the agent tells of its host.
type agentJSON struct {
	api.Host
	Services []api.HostService `json:"services,omitempty"`
}

func (a hostCommands) askAgent(ctx context.Context) (answer agentJSON, err error) {
	if answer.Host, err = a.Client().Host(ctx); err != nil {
		return answer, err
	}
	var unknown error // as of an agent of the release before
	if answer.Services, unknown = a.Client().Services(ctx); unknown != nil {
		fmt.Fprintf(a.Err, "grange: warning: the agent does not tell its services: %v\n", unknown)
	}
	return answer, nil
}

func (a hostCommands) drawHost(h farm.HostFacts, agent *agentJSON) error {
	t, holders := h.Topology, map[int]string{}
	if agent != nil {
		var err error
		if t, err = wire.HostTopology(agent.Host); err != nil {
			return err
		}
		for cpu, name := range agent.Holders {
			if n, err := strconv.Atoi(cpu); err == nil {
				holders[n] = name
			}
		}
	}
	width, _, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		width = 0 // not known
	}
	fmt.Fprint(a.Out, chart.Text(t, holders, width))
	if agent != nil {
		fmt.Fprintf(a.Out, "free CPUs %s, reserved %s; %d VMs, %d waiting; accelerator %s\n", app.OrNone(agent.Free),
			app.OrNone(agent.Reserved), agent.VMs, agent.Waiting, agent.Accelerator)
		if agent.DiskTotal > 0 {
			fmt.Fprintf(a.Out, "disks of VMs: %v of %v neither taken nor promised\n",
				farm.Bytes(agent.DiskFree).Rounded(), farm.Bytes(agent.DiskTotal).Rounded())
		}
		for _, s := range agent.Services {
			fmt.Fprintln(a.Out, serviceLine(s))
		}
		for _, d := range agent.DHCP {
			fmt.Fprintln(a.Out, dhcpLine(d))
		}
		if agent.Unresponsive > 0 {
			fmt.Fprintf(a.Out, "note: the guests of %d VMs do not answer any more; `grange vm list` shows which\n",
				agent.Unresponsive)
		}
		if agent.Differing > 0 {
			fmt.Fprintf(a.Out, "note: the guests of %d VMs see other CPUs or memory than were planned; `grange vm "+
				"show` says which\n",
				agent.Differing)
		}
		if agent.Flooding > 0 {
			fmt.Fprintf(a.Out, "note: the guests of %d VMs send more to the agent than is read of them; `grange vm "+
				"show` says since when\n", agent.Flooding)
		}
		for _, note := range hypervisorNotes(agent.Host) {
			fmt.Fprintf(a.Out, "note: %s\n", note)
		}
		for _, b := range agent.BackOffs {
			fmt.Fprintf(a.Out, "note: %s\n", backOff(b))
		}
		for _, w := range agent.Warnings {
			fmt.Fprintf(a.Out, "note: %s\n", w)
		}
	}
	fmt.Fprintln(a.Out)
	fmt.Fprint(a.Out, hostSettings(h))
	return nil
}

// serviceLine is a service of the host for its VMs, and whether it takes connections.
func serviceLine(s api.HostService) string {
	state := "answers"
	if s.Problem != "" {
		state = "does not answer: " + s.Problem
	}
	return fmt.Sprintf("service %s: port %d in VMs, %s here; %s", s.Name, s.Port, s.Connect, state)
}

func dhcpLine(d api.HostDHCP) string {
	state := "idle, no VM here is on it"
	switch {
	case d.Runs:
		state = fmt.Sprintf("serves %d VMs", d.VMs)
	case d.VMs > 0:
		state = fmt.Sprintf("does not run, for %d VMs: see the agent's log", d.VMs)
	}
	return fmt.Sprintf("dhcp %s: server %s; %s", d.Network, strings.Join(d.Addresses, " "), state)
}

// hypervisorNotes say what is wrong with the host's libvirt.
func hypervisorNotes(h api.Host) []string {
	var notes []string
	since := func(t time.Time) string { return "since " + t.Local().Format("2006-01-02 15:04:05") }
	switch d := h.Hypervisor; {
	case h.Recovering != "":
		notes = append(notes, h.Recovering+"; nothing is granted until then")
	case d.Away != "" && d.Since != nil:
		notes = append(notes, d.Away+", "+since(*d.Since))
	case d.Slow != "":
		notes = append(notes, d.Slow)
	}
	for _, s := range h.Hypervisor.Stuck {
		notes = append(notes, fmt.Sprintf(
			"libvirt keeps %s, which has ended, %s: %s; it holds nothing, and was tried %d times", s.Name,
			since(s.Since), s.Reason, s.Attempts))
	}
	return notes
}

// backOff returns what is refused, until when and why.
func backOff(b api.BackOff) string {
	what := b.Kind + " " + b.Name
	if b.Name == "" {
		what = "this host"
	}
	when := "until " + b.Until.Local().Format("15:04:05")
	if b.Trial {
		when = "while one VM is tried"
	}
	if b.Closed {
		when += ", and is closed in its batch system"
	}
	return fmt.Sprintf("%s backs off %s, for its VMs did not start: %s", what, when, b.Last)
}
