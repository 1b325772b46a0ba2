package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func bridgeMTUDiffers() Rule {
	return Rule{
		ID:       "bridge-mtu-differs",
		Title:    "a network card and the bridge that it is a port of have different MTUs",
		Severity: Warning,
		Holds:    "Hosts with a bridge for VMs that has a card of the host as port.",
		Cost: "Not measured by us. A card with less than its bridge loses large frames: connections hang once they " +
			"carry data. A bridge with less than its card gives VMs small frames where large ones would do.",
		Sources: []Source{
			{"I. Pepelnjak, \"The Linux Bridge MTU Hell\", March 2025",
				"https://blog.ipspace.net/2025/03/linux-bridge-mtu-hell",
				"frames larger than the MTU of a port pass in one direction, and are lost in the other one"},
			{"P. Kern, \"Linux bridging will drop too big packets marked with DF\", December 2011",
				"http://netblog.philkern.de/2011/12/",
				"a bridge does not route: nothing tells the sender of a packet that is too big"},
		},
		Why: "A bridge passes frames on and never cuts them: one that is larger than its port takes is dropped, and " +
			"nobody is told. Guests and taps go by the MTU of the bridge. " +
			"Where the card has less, small packets and logins work, and the first large answer hangs. Where it has " +
			"more, as 9000 on a storage network, VMs send six frames in the place of one. The kernel follows the " +
			"smallest port by itself, until somebody sets the MTU of the bridge once.",
		Fix:    "Give card and bridge one MTU, that of their network, and set both where the site keeps them.",
		Danger: "VMs that run keep the MTU that they began with; an MTU that the switch does not have loses frames.",
		Undo:   "Put the old MTU back.",
		Check:  checkBridgeMTUDiffers,
	}
}

func checkBridgeMTUDiffers(h farm.HostFacts, _ Profile) []Finding {
	var out []Finding
	for _, d := range h.Devices {
		if d.Bridge == "" || d.MTU == 0 || d.BridgeMTU == 0 || d.MTU == d.BridgeMTU {
			continue
		}
		f := Finding{Severity: Advice, Where: "bridge " + d.Bridge, Wanted: "one MTU for both",
			Got:    fmt.Sprintf("%s has %d, %s %d", d.Name, d.MTU, d.Bridge, d.BridgeMTU),
			Manual: "set both to what the network has, in the host's own network configuration"}
		if d.MTU < d.BridgeMTU {
			f.Severity = Warning
		}
		out = append(out, f)
	}
	return out
}
