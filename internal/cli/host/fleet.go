package host

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
)

// fleetHostCommands are about hosts as the server knows them.
func (a hostCommands) fleetHostCommands() []*cobra.Command {
	return []*cobra.Command{a.hostList(), a.hostOpen(), a.hostClose(), a.hostDrain(), a.hostLabel(), a.hostFence(),
		a.hostRemoveOrphans(), a.hostEvict(), a.hostForget(), hostTokenCommands(a).hostToken(), a.hostJoinCommand(),
		a.hostSlow()}
}

const whichHosts = "HOST is a name, an ID, a pattern such as 'wn-*', or cell:NAME."

func (a hostCommands) hostList() *cobra.Command {
	var cell string
	cmd := &cobra.Command{Use: "list [PATTERN...]", Short: "List the hosts of the fleet",
		ValidArgsFunction: a.CompleteHosts,
		Long: `List the hosts of the fleet, with their state, free resources, VMs, and conditions that need
an operator.`, RunE: func(cmd *cobra.Command,
			args []string) error {
			return a.listHosts(cmd.Context(), cell, args)
		}}
	cmd.Flags().StringVar(&cell, "cell", "", "list only hosts of this `CELL`")
	return cmd
}

func (a hostCommands) listHosts(ctx context.Context, cell string, patterns []string) error {
	c, err := a.Fleet()
	if err != nil {
		return err
	}
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil {
			return app.Usage("write it as wn-*", "invalid pattern %q", p)
		}
	}
	hosts, _, err := c.Hosts.List(ctx, cell)
	if err != nil {
		return err
	}
	if len(patterns) > 0 {
		hosts = slices.DeleteFunc(hosts, func(h fleet.Host) bool {
			return !slices.ContainsFunc(patterns, func(p string) bool { return isHost(h, p) })
		})
	}
	return a.printHosts(hosts)
}

// isHost reports whether a word names a host.
func isHost(h fleet.Host, word string) bool {
	named, _ := path.Match(word, h.Name)
	return named || word == h.ID || word == "cell:"+h.Cell
}

func (a hostCommands) printHosts(hosts []fleet.Host) error {
	return app.Table[fleet.Host]{None: "no hosts", Head: "NAME\tCELL\tSTATE\tVMS\tCPUS\tFREE\tMEMORY\tFREE\tKIND\tSEEN\tNOTE",
		Line: func(h fleet.Host) []any {
			return []any{h.Name, h.Cell, h.State, h.VMs, h.CPUs, h.FreeCPUs, farm.Bytes(h.Memory).Rounded(),
				farm.Bytes(h.FreeMemory).Rounded(), app.Dash(h.Kind), seenText(h), app.Dash(hostNote(h))}
		}}.Print(a.App, hosts)
}

func seenText(h fleet.Host) string {
	if h.Seen == nil {
		return "never"
	}
	return app.Age(*h.Seen).String() + " ago"
}

// hostNote is the one thing that matters most of a host.
func hostNote(h fleet.Host) string {
	switch {
	case h.Drain != nil:
		return drainText(*h.Drain)
	case h.Reason != "":
		return h.Reason
	case len(h.Warnings) > 0:
		return h.Warnings[0]
	}
	return ""
}

// drainText returns how far a drain is.
func drainText(d fleet.Drain) string {
	text := fmt.Sprintf("%s left", farm.Count(d.VMs, "VM"))
	if d.Jobs > 0 {
		text += ", " + farm.Count(d.Jobs, "job")
	}
	if d.Deadline != nil {
		text += ", until " + d.Deadline.Local().Format("2006-01-02 15:04")
	}
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	return text
}

// showFleetHost prints one host as the server knows it.
func (a hostCommands) showFleetHost(ctx context.Context, ref string) error {
	c, err := a.Fleet()
	if err != nil {
		return err
	}
	h, err := c.Hosts.Get(ctx, ref)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(h)
	}
	t := output.NewColumns(a.Out)
	line := func(name, value string) {
		if value != "" {
			t.Row(name, value)
		}
	}
	line("name", h.Name)
	line("id", h.ID)
	line("cell", h.Cell)
	line("state", h.State)
	line("reason", h.Reason)
	if h.Drain != nil {
		line("drain", drainText(*h.Drain)+", since "+h.Drain.Since.Local().Format(time.DateTime)+" by "+h.Drain.By)
	}
	for _, w := range h.Warnings {
		line("warning", w)
	}
	for _, s := range h.Orphans {
		line("orphan", orphanText(h, s))
	}
	line("kind", h.Kind)
	line("labels", app.TagText(h.Labels))
	line("CPUs", fmt.Sprintf("%d, %d free", h.CPUs, h.FreeCPUs))
	line("memory", fmt.Sprintf("%v, %v free", farm.Bytes(h.Memory).Rounded(), farm.Bytes(h.FreeMemory).Rounded()))
	line("VMs", fmt.Sprint(h.VMs))
	line("accelerator", h.Accelerator)
	line("images", strings.Join(h.Images, ", "))
	line("bridges", strings.Join(h.Networks, ", "))
	line("agent", strings.TrimSpace(fmt.Sprintf("%s, capability %d", h.Version, h.Capability)))
	line("seen", seenText(h))
	line("enrolled", h.Enrolled.Local().Format(time.DateTime))
	if h.CertExpires != nil {
		line("certificate", "until "+h.CertExpires.Local().Format(time.DateTime))
	}
	return t.Flush()
}
