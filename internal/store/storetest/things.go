package storetest

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// noon is a time to the nanosecond, in UTC as all that is stored.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 123456789, time.UTC)

// aVM is a VM with everything that one can have.
func aVM(n int) farm.VM {
	name := fmt.Sprintf("vm-%03d", n)
	big := aShape("big")
	big.CPUs = 8
	return farm.VM{
		ID: "id-" + name, Name: name, Project: "p" + fmt.Sprint(n%3), Owner: "ann", Key: "ssh-ed25519 AAAA",
		Keys:  []string{"k1", "k2"},
		Image: "sl9", Digest: "sha256:1", Shape: aShape("small"), Cell: "b" + fmt.Sprint(n%2), Network: "front",
		Lease: farm.Lease{Network: "front", Address: netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", n)),
			MAC: fmt.Sprintf("52:54:00:00:00:%02x", n), Hostname: name + ".example.org"},
		Group: "near", SecurityGroups: []string{"web"},
		Needs: []string{"gpu", "rack!=b3"}, Tags: map[string]string{"a": "ü"},
		UserData: []byte("#cloud-config\n\x00\xff"),
		Created:  noon, Expires: noon.Add(time.Hour),
		Wanted: farm.Wanted{Power: farm.PowerOn, Boots: 1, Builds: 2, Fresh: 2},
		Host:   "h" + fmt.Sprint(n%4), Plan: aPlan(n), Reservation: "4711", Waiting: "no room", Resize: &big,
		Observed: farm.Observed{State: farm.VMRunning, Reason: "r", Since: noon, Boots: 1, Builds: 2, Ready: true,
			Plan: aPlan(n), CPUTime: time.Minute, Digest: "sha256:0"},
	}
}

func aShape(name string) farm.Shape {
	return farm.Shape{Name: name, CPUs: 2, Memory: 4 * farm.GiB, Scratch: 10 * farm.GiB,
		Pages: []farm.Bytes{farm.GiB, 0}, Network: farm.NetworkUser,
		Guest: farm.GuestTopology{Sockets: 1, Cores: 1, Threads: 2}, CPUModel: "host-model", Cells: 1, Cache: "none",
		Display: true}
}

func aPlan(n int) farm.Plan {
	return farm.Plan{VCPUs: []farm.CPUSet{farm.NewCPUSet(n), farm.NewCPUSet(n + 64)}, Emulator: farm.CPURange(0, 4),
		Guest: farm.GuestTopology{Sockets: 1, Cores: 1, Threads: 2},
		Cells: []farm.GuestCell{{VCPUs: farm.CPURange(0, 2), Memory: 4 * farm.GiB, Node: 1, PageSize: farm.GiB}},
		Extra: farm.NewCPUSet(200)}
}

// aHost is a host with everything that one can have.
func aHost(n int) farm.Host {
	name := fmt.Sprintf("host-%02d", n)
	return farm.Host{
		ID: "h" + fmt.Sprint(n), Name: name, Cell: "b" + fmt.Sprint(n%2), Kind: "amd-epyc-7302-2s",
		Labels: map[string]string{"rack": "b3"}, Closed: true, Reason: "disk",
		Drain: farm.Drain{Since: noon, Deadline: noon.Add(time.Hour), Reason: "kernel", By: "ann"}, Fenced: noon,
		MachineID: "m" + fmt.Sprint(n), Serial: "2a", Before: "29", Expires: noon.Add(24 * time.Hour), Enrolled: noon,
		Facts: someFacts(), Seen: noon, Clock: -3 * time.Millisecond,
	}
}

func someFacts() farm.Facts {
	return farm.Facts{
		Version: "v1", Capability: 1, Instance: "i", Boot: "b", Accelerator: "kvm",
		Topology: farm.Topology{Online: farm.CPURange(0, 8),
			Cores:   []farm.Core{{Threads: farm.NewCPUSet(0, 4), Kind: farm.FastCore}},
			Sockets: []farm.Socket{{CPUs: farm.CPURange(0, 8)}},
			Nodes: []farm.Node{{CPUs: farm.CPURange(0, 8), Memory: 64 * farm.GiB, Free: farm.GiB,
				Pages: []farm.HugePages{{Size: farm.GiB, Total: 3, Free: 2}}}}, L3: []farm.CPUSet{farm.CPURange(0, 8)},
			CPU:      farm.CPUModel{Vendor: "AMD", Name: "EPYC", Family: 23, Flags: []string{"sse"}},
			Distance: [][]int{{10}}},
		Reserve: farm.HostReserve{CPUs: farm.NewCPUSet(0), Memory: farm.GiB}, Taken: []farm.Plan{aPlan(1)},
		Images: []string{"sl9"}, Networks: []string{"br0"},
		ScratchFree: farm.TiB, Short: []string{"disk"}, Kind: "amd-epyc-7302-2s",
		Audited: true, Findings: []farm.HostFinding{{Rule: "ept-off", Severity: "fault", Places: 1}},
	}
}

func aCell() farm.Cell {
	return farm.Cell{Name: "b1", Broker: farm.BrokerGrange, Default: true, Projects: []string{"p"}, Packing: farm.Pack,
		Overcommit: 1.5, Limits: farm.Quota{VMs: 3}, Labels: map[string]string{"a": "b"},
		Drain: farm.Drain{Since: noon}}
}

func aProject() farm.Project {
	return farm.Project{Name: "p", Account: "atlas", Quota: farm.Quota{CPUs: 8, Memory: farm.TiB},
		Networks: []string{"front"}, MaxAge: time.Hour, Pledge: 400,
		SecurityGroups: true, SSHFrom: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
}

func aNetwork() farm.FleetNetwork {
	return farm.FleetNetwork{Name: "front", Bridge: "br0", VLAN: 7, DNS: []string{"192.0.2.1"},
		Names: []string{"a", "b"}, Isolate: true}
}

func aToken() farm.Token {
	return farm.Token{ID: "t1", User: "ann", Hash: []byte{0, 1, 255}, Role: farm.RoleMember, Projects: []string{"p"},
		Created: noon, Expires: noon}
}

func aJoinToken() farm.JoinToken {
	return farm.JoinToken{ID: "j1", Hash: []byte{1}, Cell: "b1", Labels: map[string]string{"a": "b"},
		Expires: noon, Count: 3}
}
