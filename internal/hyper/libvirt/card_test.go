package libvirt

import (
	"strings"
	"testing"

	"libvirt.org/go/libvirtxml"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// TestUnknownCard: a machine is refused whose card nobody here can make, instead of made without one.
func TestUnknownCard(t *testing.T) {
	m := confinedMachine()
	m.Plan = farm.Plan{VCPUs: []farm.CPUSet{{}}, Guest: farm.GuestTopology{Sockets: 1, Cores: 1, Threads: 1},
		Cells: []farm.GuestCell{{VCPUs: farm.NewCPUSet(0), Memory: farm.GiB}}, Floating: farm.NewCPUSet(0)}
	for _, known := range []hyper.CardType{hyper.NoCard, hyper.UserCard, hyper.BridgeCard,
		hyper.MacvtapCard, hyper.FunctionCard} {
		m.Card.Type = known
		if _, _, err := (host{accel: TCG}).domain(m); err != nil {
			t.Errorf("card %q: %v", known, err)
		}
	}
	m.Card.Type = "carrier-pigeon"
	if _, _, err := (host{accel: TCG}).domain(m); !farm.IsCode(err, hyper.CodeBadMachine) {
		t.Errorf("an unknown card: %v", err)
	}
}

func TestTapXML(t *testing.T) {
	bridge := hyper.Card{Type: hyper.BridgeCard, Bridge: "br0", MAC: "52:54:0a:66:00:14"}
	for vcpus, want := range map[int]string{
		1:   `<interface type="bridge"><mac address="52:54:0a:66:00:14"></mac><source bridge="br0"></source><model type="virtio"></model><rom enabled="no"></rom></interface>`,
		2:   `<interface type="bridge"><mac address="52:54:0a:66:00:14"></mac><source bridge="br0"></source><model type="virtio"></model><driver queues="2"></driver><rom enabled="no"></rom></interface>`,
		512: `queues="256"`,
	} {
		if got := interfaceXML(t, bridge, vcpus); !strings.Contains(got, want) {
			t.Errorf("%d vCPUs: no %s in\n%s", vcpus, want, got)
		}
	}
	bridge.MTU = 1450
	for want, c := range map[string]hyper.Card{
		`<mtu size="1450"></mtu>`: bridge,
		`<interface type="direct"><mac address="52:54:0a:66:00:14"></mac><source dev="eno2" mode="bridge"></source><model type="virtio"></model><rom enabled="no"></rom></interface>`: {
			Type: hyper.MacvtapCard, Source: "eno2", MAC: "52:54:0a:66:00:14"},
		`<interface type="hostdev" managed="no"><mac address="52:54:0a:66:00:14"></mac><source><address type="pci" domain="0x0000" bus="0x01" slot="0x10" function="0x2"></address></source><rom enabled="no"></rom></interface>`: {
			Type: hyper.FunctionCard, Source: "0000:01:10.2", MAC: "52:54:0a:66:00:14"},
	} {
		if got := interfaceXML(t, c, 1); !strings.Contains(got, want) {
			t.Errorf("%+v: no %s in\n%s", c, want, got)
		}
	}
}

// interfaceXML is a machine's card as libvirt gets it, but for its address.
func interfaceXML(t *testing.T, c hyper.Card, vcpus int) string {
	t.Helper()
	l := devices(hyper.Machine{Plan: farm.Plan{VCPUs: make([]farm.CPUSet, vcpus)}, Card: c})
	if len(l.Interfaces) != 1 || l.Interfaces[0].Address == nil {
		t.Fatalf("%d vCPUs: %+v", vcpus, l.Interfaces)
	}
	x := l.Interfaces[0]
	x.Address = nil
	devices := &libvirtxml.DomainDeviceList{Interfaces: []libvirtxml.DomainInterface{x}}
	text, err := (&libvirtxml.Domain{Devices: devices}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var flat strings.Builder
	for line := range strings.Lines(text) {
		flat.WriteString(strings.TrimSpace(line))
	}
	return flat.String()
}
