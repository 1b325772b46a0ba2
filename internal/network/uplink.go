package network

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// Carries returns what the host's network carries each way: what the site says, or the speed of its card; 0 where
// neither is known.
func Carries(n farm.HostNetworks) farm.Rate {
	if n.Bandwidth > 0 {
		return n.Bandwidth
	}
	return UplinkSpeed()
}

// UplinkSpeed returns the speed of the card over which this host reaches others, as its driver reports it; 0 where that
// is not known, as of cards of virtual machines.
func UplinkSpeed() farm.Rate { return uplinkSpeed("/") }

func uplinkSpeed(root string) farm.Rate {
	return speedOf(filepath.Join(root, "sys/class/net"), defaultRoute(root), maxStacked)
}

// maxStacked is how many links may lie on each other: a bridge on a VLAN on a bond has three.
const maxStacked = 4

// routes is a table of routes as the kernel shows it: which columns things are in, and what the default route has
// there.
type routes struct {
	file                         string
	device, target, mask, metric int
	anywhere, noMask             string
	base                         int // of the metric
}

// routeTables are those of IPv4 and IPv6; of the first one that has a default route, that counts.
var routeTables = []routes{
	{"proc/net/route", 0, 1, 7, 6, "00000000", "00000000", 10},
	{"proc/net/ipv6_route", 9, 0, 1, 5, strings.Repeat("0", 32), "00", 16},
}

// defaultRoute is the interface of the host's default route; "": it has none.
func defaultRoute(root string) string {
	for _, r := range routeTables {
		text, err := os.ReadFile(filepath.Join(root, r.file))
		if err != nil {
			continue
		}
		if device := r.uplink(string(text)); device != "" {
			return device
		}
	}
	return ""
}

// uplink is the interface of the default route with the least metric.
func (r routes) uplink(text string) (device string) {
	least := uint64(0)
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) <= max(r.device, r.mask, r.metric) || f[r.target] != r.anywhere || f[r.mask] != r.noMask ||
			f[r.device] == "lo" {
			continue
		}
		metric, err := strconv.ParseUint(f[r.metric], r.base, 64)
		if err == nil && (device == "" || metric < least) {
			device, least = f[r.device], metric
		}
	}
	return device
}

// speedOf is the speed of a link: a card's or a bond's own, and of others that of the fastest that they lie on. A
// bridge's own would be that of a tap.
func speedOf(links, name string, depth int) farm.Rate {
	if name == "" || depth == 0 {
		return 0
	}
	dir := filepath.Join(links, name)
	own := func(file string) bool { _, err := os.Stat(filepath.Join(dir, file)); return err == nil }
	if own("device") || own("bonding") {
		text, err := os.ReadFile(filepath.Join(dir, "speed"))
		if err != nil {
			return 0
		}
		mbit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 32)
		if err != nil || mbit <= 0 { // -1: the driver does not know
			return 0
		}
		return farm.Rate(mbit) * 1e6
	}
	var fastest farm.Rate
	below, _ := filepath.Glob(filepath.Join(dir, "lower_*"))
	for _, link := range below {
		lower := strings.TrimPrefix(filepath.Base(link), "lower_")
		fastest = max(fastest, speedOf(links, lower, depth-1))
	}
	return fastest
}
