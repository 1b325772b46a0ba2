package libvirt

import (
	"strings"
	"testing"

	"libvirt.org/go/libvirtxml"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

func TestBridgeXML(t *testing.T) {
	for vcpus, want := range map[int]string{
		1:   `<interface type="bridge"><mac address="52:54:0a:66:00:14"></mac><source bridge="br0"></source><model type="virtio"></model><rom enabled="no"></rom></interface>`,
		2:   `<interface type="bridge"><mac address="52:54:0a:66:00:14"></mac><source bridge="br0"></source><model type="virtio"></model><driver queues="2"></driver><rom enabled="no"></rom></interface>`,
		512: `queues="256"`,
	} {
		l := devices(hyper.Machine{Network: farm.NetworkBridge("br0"), MAC: "52:54:0a:66:00:14",
			Plan: farm.Plan{VCPUs: make([]farm.CPUSet, vcpus)}})
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
