package libvirt

import (
	"encoding/xml"
	"fmt"
	"slices"

	"libvirt.org/go/libvirtxml"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// A machine that comes from another host is made from this host's own description of it, h.domain, in which what its
// guest has seen is replaced by what the other host says of it: the machine type, the processor, the addresses of its
// devices. The other host's description is never used as it is: a file, a device or a program named in it would be this
// host's.

// machineType is what QEMU calls the q35 machines that we make, with the version that a running one has.
var machineType = lazyregexp.New(`^pc-q35-[a-z0-9.-]{1,40}$`)

// word is what libvirt calls processors and their features.
var word = lazyregexp.New(`^[A-Za-z0-9._+-]{1,64}$`)

// misfit is the error for a machine that cannot be made here as its guest sees it.
func misfit(format string, args ...any) error {
	return &farm.Error{Kind: farm.Conflict, Code: hyper.CodeDevices,
		Message: "the machine cannot be made on this host as its guest sees it: " + fmt.Sprintf(format, args...),
		Hint:    "move it to a host of the same release, or stop it and have it made anew"}
}

// fit is own with what the guest sees of the machine as described elsewhere. It is pure.
func fit(own string, described []byte) (string, error) {
	var d, seen libvirtxml.Domain
	if err := d.Unmarshal(own); err != nil {
		return "", fmt.Errorf("read our own description: %w", err)
	}
	if err := seen.Unmarshal(string(described)); err != nil {
		return "", misfit("its description cannot be read: %v", err)
	}
	if seen.OS == nil || seen.OS.Type == nil || seen.Devices == nil || seen.CPU == nil {
		return "", misfit("its description lacks machine type, processor or devices")
	}
	if seen.UUID != d.UUID || seen.Type != d.Type {
		return "", misfit("it is machine %.40s of type %.10s, and here %s of type %s", seen.UUID, seen.Type,
			d.UUID, d.Type)
	}
	if !machineType.MatchString(seen.OS.Type.Machine) {
		return "", misfit("unknown machine type %.40q", seen.OS.Type.Machine)
	}
	if (seen.OS.Loader == nil) != (d.OS.Loader == nil) {
		return "", misfit("one of the two hosts has the firmware of the machine, and the other has not")
	}
	d.OS.Type.Machine = seen.OS.Type.Machine
	if seen.Features != nil && seen.Features.KVM != nil && d.Features.KVM != nil {
		d.Features.KVM = seen.Features.KVM // hints that a guest reads once, and which libvirt's version decides
	}
	if err := fitCPU(d.CPU, seen.CPU); err != nil {
		return "", err
	}
	if err := fitDevices(d.Devices, seen.Devices); err != nil {
		return "", err
	}
	return d.Marshal()
}

// fitCPU takes over the processor that the guest was shown: its model and features, and how far apart its cells seem to
// be.
func fitCPU(own, seen *libvirtxml.DomainCPU) error {
	if !slices.Contains([]string{hostModel, custom, maximum}, seen.Mode) {
		return &farm.Error{Kind: farm.Conflict, Code: hyper.CodeCPU,
			Message: fmt.Sprintf("the guest was shown CPU mode %.40q, which is of one host alone", seen.Mode),
			Hint:    "give its shape a CPU model that several hosts have, or host-model, and have it made anew"}
	}
	own.Mode, own.Match, own.Check, own.Migratable = seen.Mode, seen.Match, seen.Check, seen.Migratable
	own.Model, own.Vendor, own.Features, own.MaxPhysAddr = seen.Model, seen.Vendor, seen.Features, seen.MaxPhysAddr
	names := []string{}
	if own.Model != nil {
		names = append(names, own.Model.Value)
	}
	if own.Vendor != "" {
		names = append(names, own.Vendor)
	}
	for _, f := range own.Features {
		names = append(names, f.Name)
	}
	if i := slices.IndexFunc(names, func(n string) bool { return !word.MatchString(n) }); i >= 0 {
		return misfit("its processor has %.40q", names[i])
	}
	if seen.Numa == nil || len(seen.Numa.Cell) != len(own.Numa.Cell) {
		return misfit("its guest has another number of NUMA cells")
	}
	for i := range own.Numa.Cell {
		own.Numa.Cell[i].Distances = seen.Numa.Cell[i].Distances
	}
	return nil
}

// fitDevices takes over where the guest sees each device, and the controllers that libvirt has added for them. All
// devices must be the same.
func fitDevices(own, seen *libvirtxml.DomainDeviceList) error {
	own.Controllers = nil
	for _, c := range seen.Controllers {
		if !slices.Contains([]string{"usb", "pci", "sata", "virtio-serial"}, c.Type) || c.Driver != nil {
			return misfit("unknown controller %.40q", c.Type)
		}
		own.Controllers = append(own.Controllers, c)
	}
	// keyboard and mouse, which libvirt adds by itself
	seen.Inputs = slices.DeleteFunc(seen.Inputs, func(in libvirtxml.DomainInput) bool { return in.Bus == "ps2" })
	if err := fitDisplay(own, seen); err != nil {
		return err
	}
	if err := fitEach("disks", own.Disks, seen.Disks, func(o, s *libvirtxml.DomainDisk) bool {
		o.Address = s.Address
		return o.Serial == s.Serial && s.Target != nil && o.Target.Dev == s.Target.Dev &&
			o.Target.Bus == s.Target.Bus && (o.ReadOnly == nil) == (s.ReadOnly == nil)
	}); err != nil {
		return err
	}
	if err := fitEach("network cards", own.Interfaces, seen.Interfaces, func(o, s *libvirtxml.DomainInterface) bool {
		if o.Address = s.Address; o.MAC == nil {
			o.MAC = s.MAC
		}
		if s.MTU == nil {
			o.MTU = nil // by an agent that told guests of smaller ones alone
		}
		return s.MAC != nil && o.MAC.Address == s.MAC.Address
	}); err != nil {
		return err
	}
	if err := fitEach("channels", own.Channels, seen.Channels, func(o, s *libvirtxml.DomainChannel) bool {
		o.Address = s.Address
		return s.Target != nil && s.Target.VirtIO != nil && o.Target.VirtIO.Name == s.Target.VirtIO.Name
	}); err != nil {
		return err
	}
	if err := fitEach("watchdogs", own.Watchdogs, seen.Watchdogs, func(o, s *libvirtxml.DomainWatchdog) bool {
		o.Address = s.Address
		return o.Model == s.Model
	}); err != nil {
		return err
	}
	if len(own.Serials) != len(seen.Serials) || len(own.Panics) != len(seen.Panics) {
		return misfit("it has %d consoles and %d panic devices, and here %d and %d", len(seen.Serials),
			len(seen.Panics), len(own.Serials), len(own.Panics))
	}
	if seen.MemBalloon == nil || seen.MemBalloon.Model != own.MemBalloon.Model {
		return misfit("its memory balloon is another one")
	}
	own.MemBalloon.Address = seen.MemBalloon.Address
	return noOthers(*seen)
}

// fitDisplay takes over where the guest sees its screen and pointer. Where people connect is each host's own.
func fitDisplay(own, seen *libvirtxml.DomainDeviceList) error {
	if err := fitEach("screens", own.Videos, seen.Videos, func(o, s *libvirtxml.DomainVideo) bool {
		o.Address = s.Address
		return o.Model.Type == s.Model.Type && o.Model.VRam == s.Model.VRam && o.Model.Heads == s.Model.Heads
	}); err != nil {
		return err
	}
	return fitEach("pointers", own.Inputs, seen.Inputs, func(o, s *libvirtxml.DomainInput) bool {
		o.Address = s.Address
		return o.Type == s.Type && o.Bus == s.Bus
	})
}

// fitEach has same take over what the guest sees of each device, and report whether it is the same one.
func fitEach[T any](what string, own, seen []T, same func(own, seen *T) bool) error {
	if len(own) != len(seen) {
		return misfit("it has %d %s, and here it would have %d", len(seen), what, len(own))
	}
	for i := range own {
		if !same(&own[i], &seen[i]) {
			return misfit("its %s are others than here", what)
		}
	}
	return nil
}

// noOthers refuses devices of kinds that no machine of ours has.
func noOthers(l libvirtxml.DomainDeviceList) error {
	l.Emulator, l.Disks, l.Controllers, l.Interfaces, l.Serials, l.Consoles, l.Channels, l.Watchdogs, l.MemBalloon, l.Panics = "", nil, nil, nil, nil, nil, nil, nil, nil, nil
	l.Graphics, l.Videos, l.Inputs = nil, nil, nil
	// libvirt adds it by itself
	l.Audios = slices.DeleteFunc(l.Audios, func(a libvirtxml.DomainAudio) bool { return a.None != nil })
	text, err := xml.Marshal(struct {
		XMLName xml.Name `xml:"devices"`
		libvirtxml.DomainDeviceList
	}{DomainDeviceList: l})
	if err != nil {
		return err
	}
	if string(text) != "<devices></devices>" {
		return misfit("it has devices that are not moved: %.200s", text)
	}
	return nil
}
