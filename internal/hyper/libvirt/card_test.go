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
	for _, known := range []hyper.CardType{hyper.NoCard, hyper.UserCard, hyper.BridgeCard} {
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

func TestBridgeXML(t *testing.T) {
	for vcpus, want := range map[int]string{
		1:   `<interface type="bridge"><mac address="52:54:0a:66:00:14"></mac><source bridge="br0"></source><model type="virtio"></model><rom enabled="no"></rom></interface>`,
		2:   `<interface type="bridge"><mac address="52:54:0a:66:00:14"></mac><source bridge="br0"></source><model type="virtio"></model><driver queues="2"></driver><rom enabled="no"></rom></interface>`,
		512: `queues="256"`,
	} {
		l := devices(hyper.Machine{Plan: farm.Plan{VCPUs: make([]farm.CPUSet, vcpus)},
			Card: hyper.Card{Type: hyper.BridgeCard, Bridge: "br0", MAC: "52:54:0a:66:00:14"}})
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
		if !strings.Contains(flat.String(), want) {
			t.Errorf("%d vCPUs: no %s in\n%s", vcpus, want, text)
		}
	}
}
