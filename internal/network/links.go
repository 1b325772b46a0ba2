package network

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/network/nwfilter"
	"github.com/grange-project/grange/internal/program"
)

var groupText = strconv.Itoa(nwfilter.Group)

const toolLimit = 10 * time.Second

// ip runs ip(8) or, named, another program of iproute2.
func ip(ctx context.Context, args ...string) ([]byte, error) { return run(ctx, "ip", args...) }

func run(ctx context.Context, name string, args ...string) ([]byte, error) {
	out, err := program.Start(ctx, program.Call{Path: name, Args: args, Limit: toolLimit})
	if err == nil {
		return out, nil
	}
	return nil, notMade(err, "the host's links are not as a network needs them",
		"see `ip -details link show`, and whether something else on the host changes its links",
		"install iproute2 on the host")
}

// notMade is the error of a program that did not do its part; hint is what to try, or install where it is missing.
func notMade(err error, what, hint, install string) error {
	if program.Missing(err) {
		hint = install
	}
	return &farm.Error{Kind: farm.Unavailable, Code: CodeNotMade, Message: what + ": " + err.Error(), Hint: hint,
		Err: err}
}

// set changes a link as `ip link set dev` has the words, and its MTU where that is not 0.
func set(ctx context.Context, mtu int, words ...string) error {
	words = append([]string{"link", "set", "dev"}, words...)
	if mtu > 0 {
		words = append(words, "mtu", strconv.Itoa(mtu))
	}
	_, err := ip(ctx, words...)
	return err
}

// link is what ip(8) tells of an interface.
type link struct {
	Name    string   `json:"ifname"`
	Address string   `json:"address"`
	Master  string   `json:"master"`
	Group   string   `json:"group"`
	Flags   []string `json:"flags"`
	Others  []string `json:"altnames"`
}

// linksOf returns the links that `ip link show` has for these words.
func linksOf(ctx context.Context, words ...string) ([]link, error) {
	out, err := ip(ctx, append([]string{"-json", "link", "show"}, words...)...)
	if err != nil {
		return nil, err
	}
	var all []link
	if err := decode(out, &all); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(l link) bool { return l.Name == "" }), nil // {} is one that does not match
}

func decode(out []byte, into any) error {
	if len(out) == 0 { // as older releases print no links
		return nil
	}
	if err := json.Unmarshal(out, into); err != nil {
		return &farm.Error{Kind: farm.Internal, Code: CodeNotMade,
			Message: "iproute2 prints what cannot be read: " + err.Error(), Hint: "install a newer iproute2", Err: err}
	}
	return nil
}

// forward is an entry of a bridge's forwarding database, or of a VXLAN device's.
type forward struct {
	MAC    string `json:"mac"`
	Name   string `json:"ifname"`
	Master string `json:"master"`
	To     string `json:"dst"`
	State  string `json:"state"`
}

// forwardsOf returns the entries that `bridge fdb show` has for these words.
func forwardsOf(ctx context.Context, words ...string) (all []forward, err error) {
	out, err := run(ctx, "bridge", append([]string{"-json", "fdb", "show"}, words...)...)
	if err == nil {
		err = decode(out, &all)
	}
	return all, err
}

// mark is the hardware address that stands for a machine in the forwarding database of its bridge: locally
// administered, and of no card. A bridge has any number of such entries, and they go with it.
func mark(machine string) string {
	sum := sha256.Sum256([]byte(machine))
	return net.HardwareAddr(append([]byte{0x0a}, sum[:5]...)).String()
}

// marks are those of a bridge: all of its own permanent entries but its own address. A kernel that can filter VLANs has
// each twice, once for the bridge's default VLAN.
func marks(bridge link, entries []forward) []string {
	var found []string
	for _, f := range entries {
		if f.Name == bridge.Name && f.Master == bridge.Name && f.State == "permanent" && f.MAC != bridge.Address {
			found = append(found, f.MAC)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// noHost keeps the host out of a network of VMs: it has no link-local address there, by which they would reach its
// services and a router in the network would become the host's; it answers nobody's ARP for addresses that it has
// elsewhere, which a VM may have here; and it routes nothing from there.
func noHost(name string) error {
	for _, setting := range []struct{ path, value string }{
		{filepath.Join("ipv6/conf", name, "disable_ipv6"), "1"}, // there is none where the kernel has no IPv6
		{filepath.Join("ipv4/conf", name, "arp_ignore"), "1"},
		{filepath.Join("ipv4/conf", name, "forwarding"), "0"}, // whoever writes ip_forward turns it on again
	} {
		err := os.WriteFile(filepath.Join("/proc/sys/net", setting.path), []byte(setting.value), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return &farm.Error{Kind: farm.Internal, Code: CodeNotMade,
				Message: "the host would be reached in a network of VMs: " + err.Error(),
				Hint:    "run the agent by its unit, which may write there", Err: err}
		}
	}
	return nil
}
