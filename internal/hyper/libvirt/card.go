package libvirt

import (
	"libvirt.org/go/libvirtxml"

	"github.com/grange-project/grange/internal/hyper"
)

// card is how libvirt makes a type of network card, and what QEMU may open for it, as rules of AppArmor.
type card struct {
	device func(hyper.Machine) libvirtxml.DomainInterface
	rules  string
}

// cards are all types but hyper.NoCard.
var cards = map[hyper.CardType]card{
	hyper.UserCard:   {userXML, userRules},
	hyper.BridgeCard: {bridgeXML, "  /dev/net/tun rw,\n  /dev/vhost-net rw,\n"},
	// libvirt opens the device, and AppArmor looks at what QEMU gets
	hyper.MacvtapCard: {macvtapXML, "  /dev/tap[0-9]* rw,\n  /dev/vhost-net rw,\n"},
}

// userXML is a card with one queue: QEMU's user-mode network has no more.
func userXML(hyper.Machine) libvirtxml.DomainInterface {
	return libvirtxml.DomainInterface{
		Source: &libvirtxml.DomainInterfaceSource{User: &libvirtxml.DomainInterfaceSourceUser{}},
		Model:  &libvirtxml.DomainInterfaceModel{Type: "virtio"},
		ROM:    &libvirtxml.DomainROM{Enabled: "no"}, // nobody boots from the network; the firmware need not look
	}
}

// userRules let QEMU speak to whom the guest asks for: our caller keeps it from the host.
const userRules = `  network inet stream,
  network inet dgram,
  network inet6 stream,
  network inet6 dgram,
  /etc/resolv.conf r,
  /run/{systemd/resolve,resolvconf,NetworkManager}/*resolv*.conf r,
`

// bridgeXML is a card on a bridge of the host, through a tap device that libvirt makes and that goes with the machine.
// The guest learns of its MTU from the card.
func bridgeXML(m hyper.Machine) libvirtxml.DomainInterface {
	x := tapXML(m, libvirtxml.DomainInterfaceSource{
		Bridge: &libvirtxml.DomainInterfaceSourceBridge{Bridge: m.Card.Bridge}})
	if m.Card.MTU > 0 {
		x.MTU = &libvirtxml.DomainInterfaceMTU{Size: uint(m.Card.MTU)}
	}
	return x
}

// macvtapXML is a card beside one of the host's, which sends frames between its VMs by itself: mode bridge. Others need
// a switch that sends them back.
func macvtapXML(m hyper.Machine) libvirtxml.DomainInterface {
	return tapXML(m, libvirtxml.DomainInterfaceSource{
		Direct: &libvirtxml.DomainInterfaceSourceDirect{Dev: m.Card.Source, Mode: "bridge"}})
}

// tapXML is a card behind a tap device. A queue for each vCPU lets all of them send and receive at once; QEMU wants no
// queues to be named where there is one.
func tapXML(m hyper.Machine, source libvirtxml.DomainInterfaceSource) libvirtxml.DomainInterface {
	x := libvirtxml.DomainInterface{Source: &source, Model: &libvirtxml.DomainInterfaceModel{Type: "virtio"},
		ROM: &libvirtxml.DomainROM{Enabled: "no"}}
	if m.Card.MAC != "" {
		x.MAC = &libvirtxml.DomainInterfaceMAC{Address: m.Card.MAC}
	}
	if n := min(len(m.Plan.VCPUs), maxTapQueues); n > 1 {
		x.Driver = &libvirtxml.DomainInterfaceDriver{Queues: uint(n)}
	}
	return x
}

// maxTapQueues is the most that one tap device has: MAX_TAP_QUEUES of the kernel's drivers/net/tun.c.
const maxTapQueues = 256
