package libvirt

import (
	"fmt"
	"os"

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
	hyper.MacvtapCard:  {macvtapXML, "  /dev/tap[0-9]* rw,\n  /dev/vhost-net rw,\n"},
	hyper.FunctionCard: {functionXML, functionRules},
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

// functionXML is a virtual function of one of the host's cards. libvirt has the card give it its MAC, and send nothing
// from another one; that nobody but QEMU uses it is our caller's part.
func functionXML(m hyper.Machine) libvirtxml.DomainInterface {
	x := libvirtxml.DomainInterface{Managed: "no", Source: &libvirtxml.DomainInterfaceSource{
		Hostdev: &libvirtxml.DomainInterfaceSourceHostdev{PCI: &libvirtxml.DomainHostdevSubsysPCISource{
			Address: pciAddress(m.Card.Source)}}}, ROM: &libvirtxml.DomainROM{Enabled: "no"}}
	if m.Card.MAC != "" {
		x.MAC = &libvirtxml.DomainInterfaceMAC{Address: m.Card.MAC}
	}
	return x
}

// functionRules let QEMU map the function, and read what the kernel says of its bus.
const functionRules = `  /dev/vfio/vfio rw,
  /dev/vfio/[0-9]* rw,
  /sys/bus/pci/devices/ r,
  /sys/devices/pci[0-9]*/** r,
`

// pciAddress reads an address as 0000:01:10.0; nil: it is none.
func pciAddress(text string) *libvirtxml.DomainAddressPCI {
	var domain, bus, slot, function uint
	if n, err := fmt.Sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function); n != 4 || err != nil {
		return nil
	}
	return &libvirtxml.DomainAddressPCI{Domain: &domain, Bus: &bus, Slot: &slot, Function: &function}
}

// giveFunction lets the user of a machine's QEMU open the IOMMU group of its function: libvirt changes no owners for
// us. Our caller takes it back.
func giveFunction(m hyper.Machine) error {
	if m.Card.Type != hyper.FunctionCard || m.UID == 0 {
		return nil
	}
	group, err := m.Card.Group()
	if err != nil {
		return err
	}
	return os.Chown(group, int(m.UID), -1)
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
