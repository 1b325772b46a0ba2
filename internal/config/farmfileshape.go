package config

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/flavor"
)

// farmShape is a shape of the fleet. Its own keys win over the properties of an OpenStack flavor.
func (f farmShapeFile) farmShape(name string) (farm.Shape, error) {
	if err := farm.CheckName("shape", name); err != nil {
		return farm.Shape{}, err
	}
	base := shapeFile{CPUs: max(f.CPUs, 1), Memory: cmp.Or(f.Memory, "1G"), Network: string(farm.NetworkNone)}
	s, err := base.shape(name, farm.Shape{})
	if err == nil && len(f.Properties) > 0 {
		s, err = withProperties(s, f.Properties)
	}
	if err != nil {
		return s, fmt.Errorf("shape %s: %w", name, err)
	}
	s, err = shapeFile{Scratch: f.Scratch, PageSize: f.PageSize, Sockets: f.Sockets, Cores: f.Cores, Threads: f.Threads,
		Purpose: f.Purpose, CPUModel: f.CPUModel, ThreadPolicy: f.ThreadPolicy, Emulator: f.Emulator, NUMA: f.NUMA,
		Cache: f.Cache}.shape(name, s)
	if err != nil {
		return s, fmt.Errorf("shape %s: %w", name, err)
	}
	for _, m := range []struct {
		key   string
		value int
		to    *int
	}{{"max_sockets", f.MaxSockets, &s.MaxGuest.Sockets}, {"max_cores", f.MaxCores, &s.MaxGuest.Cores}, {"max_threads",
		f.MaxThreads, &s.MaxGuest.Threads}} {
		if m.value < 0 || m.value > farm.MaxCPUs {
			return s, fmt.Errorf("shape %s: %s: %d", name, m.key, m.value)
		}
		if m.value > 0 {
			*m.to = m.value
		}
	}
	if s.Guest != (farm.GuestTopology{}) {
		_, err = s.WithGuest(s.Guest)
	}
	return s, err
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
