package fleet

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/networks"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lease"
)

// networkCommands are the commands of networks.
type networkCommands struct{ *app.App }

func (a networkCommands) networkCommand() *cobra.Command {
	network := &cobra.Command{Use: "network", Short: "List networks of the fleet or of this host, and measure them",
		Long: `A network provides addresses and host names for VMs. If a server is configured (--server,
$GRANGE_SERVER, client.toml, or its socket on this machine), the networks are those of the fleet,
which are created with ` + "`grange apply`" + `. Otherwise, and with --local or the agent's --socket, they
are those of this host, on which its jobs and workers have leases: [networks] in agent.toml.`}
	network.AddCommand(a.listCommand(), a.showCommand(), a.exportCommand())
	network.AddCommand(networks.Commands(a.App)...)
	return network
}

func (a networkCommands) listCommand() *cobra.Command {
	return app.LocalFlag(&cobra.Command{Use: "list", Short: "List the networks", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.Here(cmd) {
				all, err := a.Client().Networks(cmd.Context())
				if err != nil {
					return err
				}
				return a.printLocal(all)
			}
			c, err := a.Fleet()
			if err != nil {
				return err
			}
			all, err := c.Networks(cmd.Context())
			if err != nil {
				return err
			}
			return fleetNetworks.Print(a.App, all)
		}})
}

var fleetNetworks = app.Table[fleet.Network]{None: "no networks; `grange apply` makes them",
	Head: "NETWORK\tBRIDGE\tVLAN\tVXLAN\tADDRESSES\tDOMAIN\tHOSTS", Line: func(n fleet.Network) []any {
		number := func(id int) string {
			if id == 0 {
				return "-"
			}
			return fmt.Sprint(id)
		}
		return []any{n.Name, app.Dash(n.Bridge), number(n.VLAN), number(n.VXLAN),
			app.Dash(strings.Join(n.Addresses, " ")), app.Dash(n.Domain), hostsOf(n)}
	}}

func (a networkCommands) printLocal(all []api.Network) error {
	t := app.Table[api.Network]{None: "no networks; they are below [networks] in the agent's configuration",
		Head: "NETWORK\tON\tLEASES\tTAKEN\tDOMAIN\tGATEWAYS", Line: func(n api.Network) []any {
			return []any{n.Name, n.Network, n.Total, n.Taken, app.Dash(n.Domain), app.Dash(strings.Join(n.Gateways, " "))}
		}}
	if err := t.Print(a.App, all); err != nil {
		return err
	}
	for _, n := range all {
		a.printWarnings(n)
	}
	return nil
}

func (a networkCommands) printWarnings(n api.Network) {
	for _, w := range n.Warnings {
		fmt.Fprintf(a.Err, "grange: warning: network %s: %s\n", n.Name, w)
	}
}

func (a networkCommands) showCommand() *cobra.Command {
	return app.LocalFlag(&cobra.Command{Use: "show NETWORK",
		Short: "Show a network of the fleet, or one of this host with who has its leases", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !a.Here(cmd) {
				return a.showOfFleet(cmd.Context(), args[0])
			}
			n, err := a.Client().Network(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(n)
			}
			return a.printNetwork(n)
		}})
}

func (a networkCommands) showOfFleet(ctx context.Context, name string) error {
	c, err := a.Fleet()
	if err != nil {
		return err
	}
	all, err := c.Networks(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(n fleet.Network) bool { return n.Name == name })
	if i < 0 {
		return &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoNetwork, Message: fmt.Sprintf("no network %q", name),
			Hint: "`grange network list` shows those of the fleet; --local shows those of this host"}
	}
	if a.JSON {
		return a.PrintJSON(all[i])
	}
	return a.printFleetNetwork(all[i])
}

func (a networkCommands) printFleetNetwork(n fleet.Network) error {
	w := output.NewColumns(a.Out)
	w.Row("network", n.Name)
	w.Row("on", network(n))
	w.Row("addresses", app.OrNone(strings.Join(n.Addresses, " ")))
	w.Row("names", app.OrNone(strings.Join(n.Names, " ")))
	w.Row("domain", app.OrNone(n.Domain))
	w.Row("gateway", app.OrNone(n.Gateway))
	w.Row("dns", app.OrNone(strings.Join(n.DNS, " ")))
	w.Row("isolate", n.Isolate)
	w.Row("closed", n.Closed)
	w.Row("hosts", hostsOf(n))
	return w.Flush()
}

// network is what a network of the fleet is on a host.
func network(n fleet.Network) string {
	switch {
	case n.VLAN != 0:
		return fmt.Sprintf("vlan:%d", n.VLAN)
	case n.VXLAN != 0:
		return fmt.Sprintf("vxlan:%d", n.VXLAN)
	}
	return "bridge:" + n.Bridge
}

func hostsOf(n fleet.Network) string {
	if len(n.Hosts) == 0 {
		return "all that can carry it"
	}
	return strings.Join(n.Hosts, " ")
}

func (a networkCommands) printNetwork(n api.Network) error {
	w := output.NewColumns(a.Out)
	w.Row("network", n.Name)
	w.Row("on", n.Network)
	w.Row("gateways", app.OrNone(strings.Join(n.Gateways, " ")))
	w.Row("dns", app.OrNone(strings.Join(n.DNS, " ")))
	w.Row("leases", fmt.Sprintf("%d, of which %d are taken", n.Total, n.Taken))
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	t := app.Table[api.Lease]{Head: "NAME\tMAC\tADDRESSES\tSTATE\tVM", Line: func(l api.Lease) []any {
		state := "free"
		switch {
		case l.Removed:
			state = "taken, removed from the list"
		case l.Taken:
			state = "taken"
		}
		addresses := strings.Join(l.Addresses, " ")
		if addresses == "" {
			addresses = "by DHCP"
		}
		return []any{l.Name, l.MAC, addresses, state, app.Dash(l.VM)}
	}}
	if err := t.Print(a.App, n.Leases); err != nil {
		return err
	}
	a.printWarnings(n)
	return nil
}

func (a networkCommands) exportCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{Use: "export NETWORK", Short: "Write the leases of a network of this host for the site's registry",
		Long: `Write all leases of a network, taken or not, as lines of /etc/hosts, records of a DNS zone,
hosts of ISC's dhcpd.conf, or dhcp-host lines of dnsmasq.`,
		Example: "  grange network export grid --format zone >> db.example.org", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(lease.Formats, format) {
				return app.UnknownWord("format", format, lease.Formats)
			}
			if !a.Here(cmd) {
				return app.Usage("add --local for a network of this host",
					"a server is configured, and networks of the fleet have no leases to export")
			}
			n, err := a.Client().Network(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			all, err := leasesOf(n)
			if err != nil {
				return err
			}
			return lease.Export(a.Out, format, all)
		}}
	cmd.Flags().StringVar(&format, "format", "hosts", strings.Join(lease.Formats, ", "))
	app.Complete(cmd, "format", func() []string { return lease.Formats })
	return app.LocalFlag(cmd)
}

// leasesOf reads the leases of an answer.
func leasesOf(n api.Network) (all []lease.Lease, err error) {
	for _, l := range n.Leases {
		read := lease.Lease{Name: l.Name, MAC: l.MAC}
		for _, text := range l.Addresses {
			a, err := netip.ParsePrefix(text)
			if err != nil {
				return nil, err
			}
			read.Addresses = append(read.Addresses, a)
		}
		all = append(all, read)
	}
	return all, nil
}
