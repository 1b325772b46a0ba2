package farmfile

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/flavor"
)

// shape returns the shape of a name: sizes first, then the properties, and the other keys over those.
func (f shapeTable) shape(name string) (farm.Shape, error) {
	if err := farm.CheckName("shape", name); err != nil {
		return farm.Shape{}, err
	}
	s, err := f.sized(name)
	if err == nil && len(f.Properties) > 0 {
		s, err = withProperties(s, f.Properties)
	}
	if err == nil {
		s, err = f.tuned(s)
	}
	if err != nil {
		return s, fmt.Errorf("shape %s: %w", name, err)
	}
	if s.MaxGuest, err = f.maxGuest(s.MaxGuest); err != nil {
		return s, fmt.Errorf("shape %s: %w", name, err)
	}
	_, err = s.WithGuest(s.Guest)
	return s, err
}

// sized returns the shape that CPUs and memory alone make.
func (f shapeTable) sized(name string) (s farm.Shape, err error) {
	s = farm.Shape{Name: name, CPUs: max(f.CPUs, 1), Network: farm.NetworkNone}
	if s.Memory, err = farm.ParseBytes(cmp.Or(f.Memory, "1G")); err != nil {
		return s, err
	}
	return s, s.Validate()
}

// tuned returns the shape with the other keys of the table.
func (f shapeTable) tuned(s farm.Shape) (_ farm.Shape, err error) {
	if f.Sockets != 0 || f.Cores != 0 || f.Threads != 0 {
		s.Guest = farm.GuestTopology{Sockets: max(f.Sockets, 1), Cores: max(f.Cores, 1), Threads: max(f.Threads, 1)}
	}
	s, err = s.WithDisks(farm.DiskTexts{Root: f.Disk, Scratch: f.Scratch, Volumes: f.Volumes, Swap: f.Swap,
		MemoryPeak: f.MemoryPeak})
	if err != nil {
		return s, err
	}
	if s.Bandwidth, err = farm.ParseBandwidth(f.BandwidthIn, f.BandwidthOut); err != nil {
		return s, err
	}
	s.Display = f.Display
	s, err = s.With(farm.Tuning{Purpose: f.Purpose, CPUModel: f.CPUModel, ThreadPolicy: f.ThreadPolicy,
		Emulator: f.Emulator, NUMA: f.NUMA, Pages: f.PageSize, Cache: f.Cache})
	if err != nil {
		return s, err
	}
	return s, s.Validate()
}

// maxGuest returns the maxima of a guest's topology with those of the table in their place.
func (f shapeTable) maxGuest(most farm.GuestTopology) (farm.GuestTopology, error) {
	for _, m := range []struct {
		key   string
		value int
		to    *int
	}{{"max_sockets", f.MaxSockets, &most.Sockets}, {"max_cores", f.MaxCores, &most.Cores},
		{"max_threads", f.MaxThreads, &most.Threads}} {
		if m.value < 0 || m.value > farm.MaxCPUs {
			return most, fmt.Errorf("%s: %d", m.key, m.value)
		}
		if m.value > 0 {
			*m.to = m.value
		}
	}
	return most, nil
}

const (
	cpuPolicy = "hw:cpu_policy"
	cpuMax    = "hw:cpu_max_"
)

// withProperties reads the properties of an OpenStack flavor. VMs of the fleet have CPUs of their own, so that is what
// is meant where nothing is said of it.
func withProperties(s farm.Shape, properties map[string]string) (farm.Shape, error) {
	properties = maps.Clone(properties)
	for key := range properties {
		if !strings.HasPrefix(key, "hw:") {
			return s, fmt.Errorf("property %s does not say how a VM is made; the hw: ones do", key)
		}
	}
	if policy := properties[cpuPolicy]; policy != "" && policy != "dedicated" {
		return s, fmt.Errorf("%s=%s: VMs of the fleet have CPUs of their own", cpuPolicy, policy)
	}
	properties[cpuPolicy] = "dedicated"
	r, err := flavor.VM{VCPUs: s.CPUs, Memory: s.Memory, Flavor: properties}.Request()
	if err != nil {
		return s, err
	}
	for _, c := range r.Each {
		if c.VCPUs.Len() != r.Each[0].VCPUs.Len() || c.Memory != r.Each[0].Memory {
			return s, fmt.Errorf("the NUMA cells of a shape are equal; leave hw:numa_cpus and hw:numa_mem out")
		}
	}
	if properties["hw:numa_nodes"] != "" {
		s.Cells = len(r.Each)
	}
	if len(r.Each) > 0 {
		s.Pages = r.Each[0].Pages
	}
	if len(s.Pages) == 1 && s.Pages[0] == 0 {
		s.Pages = nil // ordinary pages, as where nothing is said
	}
	s.Threads, s.Emulator, s.Guest = r.Threads, r.Emulator, r.Guest
	for key, to := range map[string]*int{"sockets": &s.MaxGuest.Sockets, "cores": &s.MaxGuest.Cores,
		"threads": &s.MaxGuest.Threads} {
		if text := properties[cpuMax+key]; text != "" {
			*to, _ = strconv.Atoi(text) // the request above has read it
		}
	}
	return s, nil
}
