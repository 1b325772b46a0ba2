package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

func (a *app) serverCA() *cobra.Command {
	show := a.serverCAShow()
	cmd := &cobra.Command{Use: "ca", Short: "The fleet's certificate authority, and its rotation", Args: cobra.NoArgs,
		Long: show.Long, RunE: show.RunE}
	cmd.AddCommand(show, a.serverCARotate(), a.serverCARetire())
	return cmd
}

func (a *app) serverCAShow() *cobra.Command {
	var asPEM bool
	cmd := &cobra.Command{
		Use: "show", Short: "Show the fleet's authorities, and whom a rotation waits for", Args: cobra.NoArgs,
		Long: `Show the fleet's certificate authorities: how many hosts have certificates of each and trust it about servers, and,
while one replaces another, which hosts and join tokens still need the older one, and for what. The certificates (--pem)
are what people's client.toml names as ca.`,
		Example: "  grange server ca\n  grange server ca show --pem >/etc/grange/fleet-ca.pem",
		RunE: a.onServer(func(ctx context.Context, c *fleet.Client, _ []string) error {
			ca, err := c.CA(ctx)
			if err != nil {
				return err
			}
			if asPEM && !a.json { // which has them, too
				for _, one := range ca.Authorities {
					fmt.Fprint(a.out, one.Certificate)
				}
				return nil
			}
			return a.printCA(ca)
		}),
	}
	cmd.Flags().BoolVar(&asPEM, "pem", false, "print the certificates alone")
	return cmd
}

func (a *app) serverCARotate() *cobra.Command {
	return &cobra.Command{
		Use: "rotate", Short: "Replace the fleet's authority, while hosts and VMs run", Args: cobra.NoArgs,
		Long: `Make the authority that replaces the present one. Hosts are told of it with their next report and renew
their certificates, which it issues; until the older one is retired both are good. All servers of the fleet must be of this
release, and hosts whose agents are older hold the rotation up. It ends by "grange server ca retire", or by itself after 30
days, when nobody needs the older one.`,
		RunE: a.onServer(func(ctx context.Context, c *fleet.Client, _ []string) error {
			ca, err := c.RotateCA(ctx)
			if err != nil {
				return err
			}
			return a.printCA(ca)
		}),
	}
}

func (a *app) serverCARetire() *cobra.Command {
	var now bool
	var without []string
	cmd := &cobra.Command{
		Use: "retire", Short: "Retire the authority that is replaced", Args: cobra.NoArgs,
		Long: `Retire the older of two authorities. It is refused while a host or a join token needs it. With --now they are shown,
and cut off after a yes: such a host joins again, by a token that is made for it, as one that was installed anew, and its VMs count as lost.`,
		Example: "  grange server ca retire\n  grange server ca retire --now\n  grange server ca retire --without " +
			"wn-7,wn-8",
		RunE: a.onServer(func(ctx context.Context, c *fleet.Client, _ []string) error {
			if now {
				var err error
				if without, err = a.cutOff(ctx, c); err != nil {
					return err
				}
			}
			ca, err := c.RetireCA(ctx, fleet.RetireRequest{Without: without})
			if err != nil {
				return err
			}
			return a.printCA(ca)
		}),
	}
	cmd.Flags().BoolVar(&now, "now", false,
		"cut off those who still need it, after they were shown and you answered yes")
	cmd.Flags().StringSliceVar(&without, "without", nil,
		"cut these off, and nobody else: `NAMES` of hosts, IDs of join tokens")
	cmd.MarkFlagsMutuallyExclusive("now", "without")
	return cmd
}

// cutOff shows whom a retirement cuts off, and returns their names after a yes.
func (a *app) cutOff(ctx context.Context, c *fleet.Client) (names []string, err error) {
	ca, err := c.CA(ctx)
	if err != nil || len(ca.Waits) == 0 {
		return nil, err
	}
	fmt.Fprintln(a.err, "these are cut off; hosts join again as if installed anew, and their VMs count as lost:")
	a.printWaits(a.err, ca.Waits)
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil, &farm.Error{Kind: farm.Invalid, Code: CodeNeedsYes,
			Message: "nothing was changed: no terminal to ask on", Hint: "name them: --without"}
	}
	fmt.Fprint(a.err, "retire the authority? [y/N] ")
	if !saidYes(ctx, os.Stdin) {
		return nil, &farm.Error{Kind: farm.Invalid, Code: CodeNeedsYes, Message: "nothing was changed"}
	}
	for _, w := range ca.Waits {
		names = append(names, w.Name())
	}
	return names, nil
}

func (a *app) printCA(ca fleet.CA) error {
	if a.json {
		return a.printJSON(ca)
	}
	w := newColumns(a.out)
	fmt.Fprintln(w, "FINGERPRINT\tSINCE\tUNTIL\tSIGNS\tHOSTS\tTRUSTED BY")
	for _, one := range ca.Authorities {
		signs := "-"
		if one.Signs {
			signs = "hosts"
		}
		since, until := one.Since.Local().Format(time.DateOnly), one.Until.Local().Format(time.DateOnly)
		w.row(fmt.Sprintf("%.16s", one.Fingerprint), since, until, signs, one.Hosts, one.Trusting)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if ca.Site {
		fmt.Fprintln(a.out, "the listener shows a certificate of the site's: these authorities vouch for hosts only")
	}
	if ca.RetiresAt == nil {
		return nil
	}
	when := ca.RetiresAt.Local().Format(time.DateTime)
	if len(ca.Waits) == 0 {
		_, err := fmt.Fprintln(a.out,
			"nobody needs the older one any more: `grange server ca retire`, or it is retired at", when)
		return err
	}
	fmt.Fprintf(a.out, "the older one is retired at %s at the earliest; these still need it:\n", when)
	return a.printWaits(a.out, ca.Waits)
}

// printWaits prints who still needs the older authority.
func (a *app) printWaits(to io.Writer, waits []fleet.CAWait) error {
	w := newColumns(to)
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
		w.row(who, seen, one.Why)
	}
	return w.Flush()
}
