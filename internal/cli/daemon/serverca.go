package daemon

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/output"
)

func (a serverCommands) serverCA() *cobra.Command {
	show := a.serverCAShow()
	cmd := &cobra.Command{Use: "ca", Short: "Show and rotate the fleet's certificate authority", Args: cobra.NoArgs,
		Long: show.Long, RunE: show.RunE}
	cmd.AddCommand(show, a.serverCARotate(), a.serverCARetire())
	return cmd
}

func (a serverCommands) serverCAShow() *cobra.Command {
	var asPEM bool
	cmd := &cobra.Command{
		Use: "show", Short: "Show the fleet's authorities and the state of a rotation", Args: cobra.NoArgs,
		Long: `Show the fleet's certificate authorities, and for each the number of hosts that have
certificates of it and that trust it to authenticate servers. During a rotation, also show
which hosts and join tokens still need the older authority, and for what. --pem prints the
certificates, which users set as ca in client.toml.`,
		Example: "  grange server ca\n  grange server ca show --pem >/etc/grange/fleet-ca.pem",
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, _ []string) error {
			ca, err := c.CA.Get(ctx)
			if err != nil {
				return err
			}
			if asPEM && !a.JSON { // which has them, too
				for _, one := range ca.Authorities {
					fmt.Fprint(a.Out, one.Certificate)
				}
				return nil
			}
			return a.printCA(ca)
		}),
	}
	cmd.Flags().BoolVar(&asPEM, "pem", false, "print only the certificates")
	return cmd
}

func (a serverCommands) serverCARotate() *cobra.Command {
	return &cobra.Command{
		Use: "rotate", Short: "Replace the fleet's authority while hosts and VMs run", Args: cobra.NoArgs,
		Long: `Create a certificate authority that replaces the current one. Hosts learn of it with their
next report, and renew their certificates, which the new authority issues. Both authorities
are valid until the older one is retired.

All servers of the fleet must run this release, and hosts with older agents delay the
rotation. The rotation ends with "grange server ca retire", or automatically after 30 days,
when nothing needs the older authority.`,
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, _ []string) error {
			ca, err := c.CA.Rotate(ctx)
			if err != nil {
				return err
			}
			return a.printCA(ca)
		}),
	}
}

func (a serverCommands) serverCARetire() *cobra.Command {
	var now bool
	var without []string
	cmd := &cobra.Command{
		Use: "retire", Short: "Retire the older authority", Args: cobra.NoArgs,
		Long: `Retire the older of two authorities. The command fails while a host or a join token needs
it. With --now, it lists them and asks for confirmation, then cuts them off. A host that is
cut off has to join again, with a new token, as a reinstalled host does; its VMs count as
lost.`,
		Example: "  grange server ca retire\n  grange server ca retire --now\n  grange server ca retire --without " +
			"wn-7,wn-8",
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, _ []string) error {
			if now {
				var err error
				if without, err = a.cutOff(ctx, c); err != nil {
					return err
				}
			}
			ca, err := c.CA.Retire(ctx, fleet.RetireRequest{Without: without})
			if err != nil {
				return err
			}
			return a.printCA(ca)
		}),
	}
	cmd.Flags().BoolVar(&now, "now", false,
		"cut off hosts and tokens that still need the authority, after confirmation")
	cmd.Flags().StringSliceVar(&without, "without", nil,
		"cut off only these `NAMES` of hosts and IDs of join tokens")
	cmd.MarkFlagsMutuallyExclusive("now", "without")
	return cmd
}

// cutOff shows whom a retirement cuts off, and returns their names after a yes.
func (a serverCommands) cutOff(ctx context.Context, c *fleet.Client) (names []string, err error) {
	ca, err := c.CA.Get(ctx)
	if err != nil || len(ca.Waits) == 0 {
		return nil, err
	}
	fmt.Fprintln(a.Err, "these are cut off; hosts join again as if installed anew, and their VMs count as lost:")
	a.printWaits(a.Err, ca.Waits)
	if err := a.Confirm(ctx, "retire the authority?", "nothing was changed", "name them: --without"); err != nil {
		return nil, err
	}
	for _, w := range ca.Waits {
		names = append(names, w.Name())
	}
	return names, nil
}

func (a serverCommands) printCA(ca fleet.CA) error {
	if a.JSON {
		return a.PrintJSON(ca)
	}
	w := output.NewColumns(a.Out)
	fmt.Fprintln(w, "FINGERPRINT\tSINCE\tUNTIL\tSIGNS\tHOSTS\tTRUSTED BY")
	for _, one := range ca.Authorities {
		signs := "-"
		if one.Signs {
			signs = "hosts"
		}
		since, until := one.Since.Local().Format(time.DateOnly), one.Until.Local().Format(time.DateOnly)
		w.Row(fmt.Sprintf("%.16s", one.Fingerprint), since, until, signs, one.Hosts, one.Trusting)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if ca.Site {
		fmt.Fprintln(a.Out, "the listener shows a certificate of the site's: these authorities vouch for hosts only")
	}
	if ca.RetiresAt == nil {
		return nil
	}
	when := ca.RetiresAt.Local().Format(time.DateTime)
	if len(ca.Waits) == 0 {
		_, err := fmt.Fprintln(a.Out,
			"nobody needs the older one any more: `grange server ca retire`, or it is retired at", when)
		return err
	}
	fmt.Fprintf(a.Out, "the older one is retired at %s at the earliest; these still need it:\n", when)
	return a.printWaits(a.Out, ca.Waits)
}

// printWaits prints who still needs the older authority.
func (a serverCommands) printWaits(to io.Writer, waits []fleet.CAWait) error {
	w := output.NewColumns(to)
	fmt.Fprintln(w, "WHO\tLAST HEARD OF\tWHY")
	for _, one := range waits {
		who, seen := "host "+one.Host, "never"
		switch {
		case one.Token != "":
			who, seen = "join token "+one.Token, "-"
		case one.Seen != nil:
			seen = one.Seen.Local().Format(time.DateTime)
		}
		if one.Away {
			seen += " (left behind)"
		}
		w.Row(who, seen, one.Why)
	}
	return w.Flush()
}
