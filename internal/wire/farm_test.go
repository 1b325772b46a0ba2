package wire

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

func samePrefix(a, b netip.Prefix) bool { return a == b }

// A farm is the same behind the wire. Lists that are there and empty, and those that are not there, stay apart: with
// prune the first delete all.
func TestFarmThereAndBack(t *testing.T) {
	shut := false
	pool, err := farm.ParseAddressPool("10.0.0.20-10.0.0.80/24")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]farm.Farm{
		"nothing": {},
		"empty": {Cells: []farm.FarmCell{}, Users: []farm.User{}, Grants: []farm.Grant{}, Shapes: []farm.Shape{},
			Settings: &farm.Settings{}, Maxima: &farm.Maxima{}},
		"all": {
			Cells: []farm.FarmCell{{Open: &shut, Cell: farm.Cell{Name: "a", Broker: "slurm", Batch: "vm", Closed: true,
				Reason: "x", Default: true, Projects: []string{"p"}, Packing: farm.Spread, KeepWhole: 1,
				Overcommit: 1.5, Limits: farm.Quota{VMs: 1, CPUs: 2, Memory: 3, Scratch: 4}, PerHost: 5, Services: true,
				Labels: map[string]string{"k": "v"}}}},
			Projects: []farm.Project{{Name: "p", Account: "q", Quota: farm.Quota{CPUs: 1}, Networks: []string{"n"},
				Shapes: []string{"s"}, Images: []string{"i*"}, MaxAge: 100 * 365 * 24 * time.Hour,
				Purpose: farm.PurposeService, SecurityGroups: true,
				SSHFrom: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}},
			Shapes: []farm.Shape{{Name: "s", CPUs: 4, Memory: farm.GiB, Network: farm.NetworkNone,
				MaxGuest: farm.GuestTopology{Sockets: 1, Cores: 2, Threads: 3}}},
			Networks: []farm.FleetNetwork{{Name: "n", Bridge: "br0", VLAN: 7, Addresses: []farm.AddressPool{pool},
				Gateway: "10.0.0.1", DNS: []string{"10.0.0.2"}, Domain: "d", Names: []string{"x"}, Isolate: true,
				Closed: true,
				Hosts:  []string{"*"}}},
			Groups: []farm.ServerGroup{{Project: "p", Name: "g", Affinity: farm.Apart}},
			Users:  []farm.User{{Name: "u", Subjects: []string{"CN=U"}, Disabled: true}},
			Grants: []farm.Grant{{User: "u", Role: farm.RoleAdmin}},
			Settings: &farm.Settings{BootTimeout: 1500 * time.Millisecond, DefaultImage: "i",
				Facts: map[string]string{"k": "v"}},
			Maxima: &farm.Maxima{CPUs: 1, Memory: 2, Scratch: 3,
				Guest: farm.GuestTopology{Sockets: 4, Cores: 5, Threads: 6}, CPUModels: []string{"m*"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := json.Marshal(Farm(want))
			if err != nil {
				t.Fatal(err)
			}
			var v fleet.Farm
			if err := json.Unmarshal(text, &v); err != nil {
				t.Fatal(err)
			}
			got, err := ParseFarm(v)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got, cmp.Comparer(farm.AddressPool.Equal), cmp.Comparer(samePrefix)); d != "" {
				t.Errorf("(-want +got):\n%s\n%s", d, text)
			}
		})
	}
}
