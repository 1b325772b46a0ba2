package nwfilter

import (
	"bytes"
	"flag"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

var update = flag.Bool("update", false, "write the rules into testdata")

// TestRules compares the rules of each testdata/NAME.filter with testdata/NAME.nft. A new case is a file: lines of a
// key and its values, and what -update writes for it.
func TestRules(t *testing.T) {
	golden(t, "shared", shared)
	golden(t, "sharedgroups", groupsShared)
	paths, err := filepath.Glob("testdata/*.filter")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".filter")
		t.Run(name, func(t *testing.T) {
			f := readFilter(t, path)
			if err := f.check(); err != nil {
				t.Fatal(err)
			}
			golden(t, name, f.rules(7))
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".nft")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: -update writes it:\n%s", path, diff)
	}
}

// readFilter reads a case.
func readFilter(t *testing.T, path string) (f Filter) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		line, _, _ = bytes.Cut(line, []byte("#"))
		words := strings.Fields(string(line))
		if len(words) == 0 {
			continue
		}
		addresses := func() (all []netip.Addr) {
			for _, w := range words[1:] {
				all = append(all, netip.MustParseAddr(w))
			}
			return all
		}
		switch words[0] {
		case "machine":
			f.Machine = words[1]
		case "mac":
			if f.MAC, err = net.ParseMAC(words[1]); err != nil {
				t.Fatal(err)
			}
		case "addresses":
			f.Addresses = addresses()
		case "send":
			if f.Send, err = farm.ParseRate(words[1]); err != nil {
				t.Fatal(err)
			}
		case "closed":
			f.Closed = true
		case "local":
			for _, w := range words[1:] {
				f.Local = append(f.Local, netip.MustParsePrefix(w))
			}
		case "gateway":
			f.Gateway = addresses()
		case "server":
			f.Server = addresses()
		case "dns":
			f.DNS = addresses()
		case "bridge":
			f.Bridge = words[1]
		case "shut":
			f.Shut = true
		case "norules":
			f.Groups = &farm.Firewall{}
		case "rule":
			if f.Groups == nil {
				f.Groups = &farm.Firewall{}
			}
			f.Groups.Rules = append(f.Groups.Rules, readRule(t, words[1:]))
		default:
			t.Fatalf("%s: no key %q", path, words[0])
		}
	}
	return f
}

// readRule reads a direction, a protocol, ports or "-", and prefixes.
func readRule(t *testing.T, words []string) (r farm.FirewallRule) {
	t.Helper()
	r.Out, r.Protocol = words[0] == "out", farm.Protocols[words[1]]
	for _, w := range words[2:] {
		if w == "-" {
			continue
		}
		if p, err := netip.ParsePrefix(w); err == nil {
			r.Peers = append(r.Peers, p)
			continue
		}
		var err error
		if r.Ports, err = farm.ParsePortRange(w); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// TestZone: a zone is never that of the host, and differs between bridges.
func TestZone(t *testing.T) {
	seen := map[int]string{}
	for _, bridge := range []string{"gvlan1", "gvlan2", "gvlan120", "gvxlan7001", "gvxlan7002"} {
		z := zone(bridge)
		if z < 1 || z > 65535 || seen[z] != "" {
			t.Errorf("zone of %s is %d, as that of %q", bridge, z, seen[z])
		}
		seen[z] = bridge
	}
}

// TestCheck: what would be no filter, or another rule, is refused.
func TestCheck(t *testing.T) {
	good := Filter{Machine: "grange-1", MAC: net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Filter){
		"no name":             func(f *Filter) { f.Machine = "" },
		"a rule":              func(f *Filter) { f.Machine = "x accept; add rule" },
		"a line":              func(f *Filter) { f.Machine = "x\nflush ruleset" },
		"no MAC":              func(f *Filter) { f.MAC = nil },
		"zero MAC":            func(f *Filter) { f.MAC = make(net.HardwareAddr, 6) },
		"group MAC":           func(f *Filter) { f.MAC = net.HardwareAddr{1, 0x80, 0xc2, 0, 0, 0} },
		"the host's metadata": func(f *Filter) { f.Addresses = []netip.Addr{netip.MustParseAddr("169.254.169.254")} },
		"the same, mapped": func(f *Filter) {
			f.Addresses = []netip.Addr{netip.MustParseAddr("::ffff:169.254.169.254")}
		},
		"no address":            func(f *Filter) { f.Addresses = []netip.Addr{{}} },
		"closed to the unknown": func(f *Filter) { f.Closed = true },
		"a protocol that is none": func(f *Filter) {
			f.Groups = &farm.Firewall{Rules: []farm.FirewallRule{{Protocol: "6 accept; add rule"}}}
		},
		"ports of no protocol": func(f *Filter) {
			f.Groups = &farm.Firewall{Rules: []farm.FirewallRule{{Ports: farm.PortRange{First: 1, Last: 2}}}}
		},
		"a prefix that is none": func(f *Filter) {
			f.Groups = &farm.Firewall{Rules: []farm.FirewallRule{{Peers: []netip.Prefix{{}}}}}
		},
	} {
		f := good
		if spoil(&f); f.check() == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestParseChains(t *testing.T) {
	got := parseChains(`table bridge nat {
	chain PREROUTING {
		type filter hook prerouting priority dstnat; policy accept;
	}
	chain send_1_theirs {
	}
}
table bridge grange {
	chain prerouting {
		type filter hook prerouting priority dstnat; policy accept;
	}
	chain send_ip {
	}
	chain send_7_grange-a_b {
	}
	chain closed_12_grange-c {
	}
	chain closed_x_grange-c {
	}
}
`)
	want := tables{chains: []chain{{"send", 7, "grange-a_b"}, {"closed", 12, "grange-c"}}, table: true}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(tables{}, chain{})); diff != "" {
		t.Error(diff)
	}
}
