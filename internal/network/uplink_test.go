package network

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

const (
	routesHead = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
	localOnly  = routesHead + "eth0\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
	twoWays    = localOnly + "eth1\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n" +
		"eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
)

var (
	zeros   = strings.Repeat("0", 32)
	sixOnly = zeros + " 00 " + zeros + " 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003 eth1\n" +
		zeros + " 00 " + zeros + " 00 " + zeros + " ffffffff 00000001 00000000 00200200 lo\n"
)

func TestUplinkSpeed(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string // "DIR/" is a directory
		want  farm.Rate
	}{
		"no route": {map[string]string{"proc/net/route": localOnly}, 0},
		"the least metric": {map[string]string{"proc/net/route": twoWays, "sys/class/net/eth0/device/": "",
			"sys/class/net/eth0/speed": "25000\n", "sys/class/net/eth1/device/": "",
			"sys/class/net/eth1/speed": "1000\n"}, 25e9},
		"IPv6 alone": {map[string]string{"proc/net/route": localOnly, "proc/net/ipv6_route": sixOnly,
			"sys/class/net/eth1/device/": "", "sys/class/net/eth1/speed": "1000\n"}, 1e9},
		"not known": {map[string]string{"proc/net/route": twoWays, "sys/class/net/eth0/device/": "",
			"sys/class/net/eth0/speed": "-1\n"}, 0},
		"a bridge on a bond, and a tap": {map[string]string{"proc/net/route": strings.ReplaceAll(twoWays, "eth0", "br0"),
			"sys/class/net/br0/speed": "10000\n", "sys/class/net/br0/lower_vnet0/": "",
			"sys/class/net/vnet0/speed": "10000\n", "sys/class/net/br0/lower_bond0/": "",
			"sys/class/net/bond0/bonding/": "", "sys/class/net/bond0/speed": "2000\n"}, 2e9},
		"links on each other for ever": {map[string]string{"proc/net/route": twoWays,
			"sys/class/net/eth0/lower_eth0/": ""}, 0},
	} {
		root := t.TempDir()
		for path, text := range c.files {
			full := filepath.Join(root, path)
			if strings.HasSuffix(path, "/") {
				must(t, os.MkdirAll(full, 0o755))
				continue
			}
			must(t, os.MkdirAll(filepath.Dir(full), 0o755))
			must(t, os.WriteFile(full, []byte(text), 0o644))
		}
		if got := uplinkSpeed(root); got != c.want {
			t.Errorf("%s: %vbit/s, want %vbit/s", name, got, c.want)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestShaped(t *testing.T) {
	// As tc prints them: other kinds have other options, also by names of ours.
	var there []qdisc
	if err := decode([]byte(`[{"kind":"noqueue","handle":"0:","dev":"lo","root":true,"options":{}},
		{"kind":"hhf","handle":"8001:","dev":"eth0","root":true,"options":{"rate":{"bits":8}}},
		{"kind":"cake","handle":"8002:","dev":"eth1","root":true,"options":{"rate":"1Gbit"}},
		{"kind":"clsact","handle":"ffff:","dev":"vnet0"},
		{"kind":"tbf","handle":"6772:","dev":"vnet1","parent":"1:1","options":{"rate":3000000}},
		{"kind":"tbf","handle":"6772:","dev":"vnet0","root":true,"options":{"rate":3000000}}]`), &there); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tap  string
		rate farm.Rate
		want bool
	}{{"vnet0", 24e6, true}, {"vnet0", 25e6, false}, {"vnet1", 24e6, false}} {
		if got := shaped(there, c.tap, c.rate); got != c.want {
			t.Errorf("%s at %v: %v", c.tap, c.rate, got)
		}
	}
}
