package networks

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/execjob"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/netbench"
)

// A check of this host's networks starts two VMs on each by `grange exec`, shows them this program, and measures from
// the second one to the first one.

// checked is the shape of such a VM: one CPU sends, or receives, and grange's own needs are small.
var checked = execjob.Shape{CPUs: 1, Memory: 256 * farm.MiB}

// checkNetworks is `check --networks`. What was measured before a network that fails is kept.
func (a networkCommands) checkNetworks(ctx context.Context, c config.Agent, f checkFlags) error {
	l, err := a.launcher(ctx, f.image)
	if err != nil {
		return err
	}
	var all []check
	for name := range strings.SplitSeq(f.networks, ",") {
		fmt.Fprintf(a.Err, "%s: two VMs start, and measure\n", name)
		r, peer, err := onNetwork(ctx, l, name, f)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		one := checkOf(peer, name, r, time.Now())
		if err := a.keep(c, one); err != nil {
			return err
		}
		all = append(all, one)
	}
	return a.judged(f, all)
}

// launcher starts VMs of an image, "": the caller's usual one. The program that they are shown is this one.
func (a networkCommands) launcher(ctx context.Context, image string) (execjob.Launcher, error) {
	own, err := app.OwnPath()
	if err == nil && image == "" {
		g, asked := a.Client().Grant(ctx)
		image, err = g.Image, asked
	}
	return execjob.Launcher{Socket: a.Socket, Grange: own, GuestFile: own, Image: image}, err
}

// networkLimit is for two VMs that start, and a check between them.
const networkLimit = 15 * time.Minute

// onNetwork measures between two VMs, which end with it.
func onNetwork(ctx context.Context, l execjob.Launcher, name string, f checkFlags) (r netbench.Result, peer string,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, networkLimit)
	options := []string{"--network", name}
	answers, err := l.Launch(ctx, checked, options, l.Guest("network", "answer", "--json")...)
	if err != nil {
		cancel()
		return r, "", err
	}
	defer answers.Finish()
	defer cancel()
	var at answering
	if err := answers.Decode(&at); err != nil {
		cancel()
		return r, "", notMeasured(name, answers.Finish())
	}
	if peer, err = at.peer(); err != nil {
		return r, "", err
	}
	measures, err := l.Launch(ctx, checked, options, l.Guest("network", "check", peer, "--key", at.Key, "--time",
		f.time.String(), "--packets", fmt.Sprint(f.packets), "--json")...)
	if err != nil {
		return r, "", err
	}
	var all []check
	if err = measures.Decode(&all); err != nil {
		cancel()
	}
	if end := measures.Finish(); err != nil || len(all) != 1 {
		return r, "", notMeasured(name, end)
	}
	return all[0].Result, peer, nil // the verdict is ours, not what a VM says
}

// notMeasured is the error of a VM that was not started, or that did not do its part.
func notMeasured(network string, end execjob.End) error {
	e := &farm.Error{Kind: farm.Unavailable, Code: netbench.CodeCheck,
		Message: fmt.Sprintf("%s: a VM was not started: %s", network, strings.Join(end.Details, "; ")),
		Hint:    "`grange exec --network " + network + " -- ip address` shows whether jobs have that network here"}
	switch {
	case end.Refused:
		e.Hint = "two VMs of one CPU and 256 MiB are needed: drain the host, or wait until it has room"
	case end.Code == "":
		e.Message = fmt.Sprintf("%s: the check in a VM ended with status %d: %s", network, end.Status,
			strings.Join(end.Details, "; "))
		e.Hint = "run it by hand: `grange network answer` in one VM, and what it prints in another one"
	}
	return e
}

// answering is what `network answer --json` prints.
type answering struct {
	Address   string   `json:"address"` // that it listens on
	Key       string   `json:"key"`
	Addresses []string `json:"addresses"` // of the machine: any of these, where it listens on all
}

// peer is where the other side finds it: IPv4 before IPv6. A VM said it.
func (a answering) peer() (string, error) {
	heard, err := netip.ParseAddrPort(a.Address)
	if err != nil || !isKey(a.Key) {
		return "", fmt.Errorf("the side that answers prints what cannot be read: %q", a.Address)
	}
	var all []netip.Addr
	for _, text := range a.Addresses {
		if address, err := netip.ParseAddr(text); err == nil && address.IsGlobalUnicast() {
			all = append(all, address)
		}
	}
	if len(all) == 0 {
		return "", &farm.Error{Kind: farm.Unavailable, Code: netbench.CodeCheck,
			Message: "the VM has no address on its network", Hint: "give the network `addresses`, or a server of DHCP"}
	}
	slices.SortStableFunc(all, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	return netip.AddrPortFrom(all[0], heard.Port()).String(), nil
}
