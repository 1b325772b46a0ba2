package wire

import (
	"strconv"
	"strings"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// Shape is a shape on the wire. Its network stays behind: a VM of the fleet has one of the fleet's.
func Shape(s farm.Shape) fleet.Shape {
	return fleet.Shape{Name: s.Name, CPUs: s.CPUs, Memory: uint64(s.Memory), Scratch: uint64(s.Scratch),
		Sockets: s.Guest.Sockets, Cores: s.Guest.Cores, Threads: s.Guest.Threads, MaxSockets: s.MaxGuest.Sockets,
		MaxCores: s.MaxGuest.Cores, MaxThreads: s.MaxGuest.Threads, CPUModel: s.CPUModel, Pages: pagesText(s.Pages),
		NUMA: numaText(s.Cells), Purpose: string(s.Purpose), ThreadPolicy: string(s.Threads),
		Emulator: string(s.Emulator), Cache: s.Cache, Disks: Disks(s.Disks), Display: s.Display,
		BandwidthIn: uint64(s.Bandwidth.In), BandwidthOut: uint64(s.Bandwidth.Out)}
}

// ParseShape reads a shape, and refuses one that no host could hold. The error is a *farm.Error of kind Invalid.
func ParseShape(v fleet.Shape) (farm.Shape, error) {
	s := farm.Shape{Name: v.Name, CPUs: v.CPUs, Memory: farm.Bytes(v.Memory), Scratch: farm.Bytes(v.Scratch),
		Network: farm.NetworkNone, Guest: farm.GuestTopology{Sockets: v.Sockets, Cores: v.Cores, Threads: v.Threads},
		MaxGuest:  farm.GuestTopology{Sockets: v.MaxSockets, Cores: v.MaxCores, Threads: v.MaxThreads},
		Display:   v.Display,
		Bandwidth: farm.Bandwidth{In: farm.Rate(v.BandwidthIn), Out: farm.Rate(v.BandwidthOut)}}
	s, err := s.With(farm.Tuning{Purpose: v.Purpose, CPUModel: v.CPUModel, ThreadPolicy: v.ThreadPolicy,
		Emulator: v.Emulator, NUMA: v.NUMA, Pages: v.Pages, Cache: v.Cache})
	if err != nil {
		return farm.Shape{}, err
	}
	s = WithDisks(s, v.Disks)
	return s, s.Validate()
}

func pagesText(sizes []farm.Bytes) string {
	words := make([]string, len(sizes))
	for i, size := range sizes {
		words[i] = size.String()
	}
	return strings.Join(words, ",")
}

func numaText(cells int) string {
	switch cells {
	case 0:
		return ""
	case 1:
		return "none"
	}
	return strconv.Itoa(cells)
}
