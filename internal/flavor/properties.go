package flavor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// VM is what OpenStack knows of a VM's shape: the size of its flavor, and the properties of flavor and image. The
// flavor is the administrator's, the image the user's: an image may ask for less than its flavor allows, never for
// more.
type VM struct {
	VCPUs  int
	Memory farm.Bytes
	Flavor map[string]string // extra specs: "hw:cpu_policy", "resources:PCPU", "trait:HW_CPU_HYPERTHREADING"
	Image  map[string]string // "hw_cpu_policy", "traits_required" (with commas)
}

// Request is the VM as the planner is asked for it. Errors are *farm.Error: farm.CodeBadProperty for properties that
// make no sense, farm.CodePropertyConflict where the image asks for what the flavor forbids.
//
// Without a word on NUMA, pages or CPUs of its own, a VM shares CPUs and has no cells, as in OpenStack. What does not
// change where a VM goes (hw:watchdog_action, hw_disk_bus) is let pass; a hw: property that nobody knows is an error,
// for it is a typing error.
func (v VM) Request() (numa.Request, error) {
	if v.VCPUs < 1 || v.VCPUs > numa.MaxVCPUs {
		return numa.Request{}, badProperty("ask for some vCPUs", "a VM cannot have %d vCPUs", v.VCPUs)
	}
	if err := v.known(); err != nil {
		return numa.Request{}, err
	}
	cpu, err := v.cpu()
	if err != nil {
		return numa.Request{}, err
	}
	req := numa.Request{VCPUs: v.VCPUs, Memory: v.Memory, Threads: cpu.threads, Emulator: cpu.emulator}
	if cpu.dedicated.Empty() {
		req.CPU = farm.Shared
	}
	if req.Each, err = v.cells(cpu); err != nil {
		return numa.Request{}, err
	}
	if req.Guest, err = v.guest(req.Each); err != nil {
		return numa.Request{}, err
	}
	return req, nil
}

func badProperty(hint, format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadProperty,
		Message: fmt.Sprintf(format, args...), Hint: hint}
}

func conflict(format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodePropertyConflict, Message: fmt.Sprintf(format, args...),
		Hint: "leave the property out of the image, or take a flavor that allows it"}
}

// both gives a property as the flavor and as the image have it.
func (v VM) both(name string) (flavor, image string) {
	return v.Flavor["hw:"+name], v.Image["hw_"+name]
}

// placed are the hw: properties that say where a VM goes, and which this package reads.
var placed = []string{"cpu_policy", "cpu_thread_policy", "cpu_dedicated_mask", "cpu_realtime", "cpu_realtime_mask",
	"emulator_threads_policy", "numa_nodes", "mem_page_size", "cpu_sockets", "cpu_cores", "cpu_threads",
	"cpu_max_sockets", "cpu_max_cores", "cpu_max_threads"}

// elsewhere are hw: properties that do not change where a VM goes.
var elsewhere = []string{"boot_menu", "ephemeral_encryption", "ephemeral_encryption_format",
	"ephemeral_encryption_secret_uuid", "hide_hypervisor_id", "locked_memory", "maxphysaddr_bits", "maxphysaddr_mode",
	"mem_encryption", "mem_encryption_model", "pci_numa_affinity_policy", "pmem", "pmu", "serial_port_count",
	"sound_model", "tpm_model", "tpm_secret_security", "tpm_version", "usb_model", "vif_multiqueue_enabled",
	"viommu_model", "video_ram", "virtio_packed_ring", "virtio_packed_queues", "watchdog_action",
	"redirected_usb_ports"}

// known refuses hw: properties of the flavor that nobody knows. Images carry properties of many programs.
func (v VM) known() error {
	for key := range v.Flavor {
		name, ok := strings.CutPrefix(key, "hw:")
		if !ok || slices.Contains(placed, name) || slices.Contains(elsewhere, name) {
			continue
		}
		base, cell, numbered := strings.Cut(name, ".")
		if _, err := strconv.ParseUint(cell, 10, 16); numbered && err == nil &&
			(base == "numa_cpus" || base == "numa_mem") {
			continue
		}
		return badProperty("the ones that say where a VM goes are hw:"+strings.Join(placed,
			", hw:")+", hw:numa_cpus.N and hw:numa_mem.N", "no property is called %s", key)
	}
	return nil
}

// cells are the guest's NUMA cells as flavor or image say them: one by one, in equal parts, or a single one where pages
// or CPUs of its own need a home. None where nothing of that is said.
func (v VM) cells(cpu cpuWish) ([]numa.CellRequest, error) {
	nodes, err := v.nodes()
	if err != nil {
		return nil, err
	}
	pages, err := v.pages()
	if err != nil {
		return nil, err
	}
	if nodes == 0 && pages == nil && cpu.dedicated.Empty() {
		return nil, nil
	}
	nodes = max(nodes, 1)
	cpus, mems, err := v.listed(nodes)
	if err != nil {
		return nil, err
	}
	if cpus == nil {
		if v.VCPUs%nodes != 0 || v.Memory%(farm.Bytes(nodes)*farm.MiB) != 0 {
			return nil, badProperty("say the cells one by one with hw:numa_cpus.N and hw:numa_mem.N, or take a "+
				"number that divides both", "%s and %v of memory do not part into %d equal NUMA cells", vcpus(v.VCPUs),
				v.Memory, nodes)
		}
		for n := range nodes {
			cpus = append(cpus, span(n*v.VCPUs/nodes, v.VCPUs/nodes))
			mems = append(mems, v.Memory/farm.Bytes(nodes))
		}
	}
	if err := v.complete(cpus, mems); err != nil {
		return nil, err
	}
	cells := make([]numa.CellRequest, nodes)
	for i := range cells {
		cells[i] = numa.CellRequest{VCPUs: cpus[i], Floating: cpus[i].Minus(cpu.dedicated), Memory: mems[i],
			Pages: pages, Threads: cpu.threads}
	}
	return cells, nil
}

// nodes is how many cells are wanted; 0 when nothing is said.
func (v VM) nodes() (int, error) {
	flavor, image := v.both("numa_nodes")
	if flavor != "" && image != "" {
		return 0, conflict("the flavor says how many NUMA cells there are (hw:numa_nodes), so the image must not")
	}
	if flavor+image == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(flavor + image)
	if err != nil || n < 1 || n > v.VCPUs {
		return 0, badProperty("ask for 1 cell, or for more, up to one for each vCPU",
			"%q is not a number of NUMA cells for %s", flavor+image, vcpus(v.VCPUs))
	}
	return n, nil
}

// listed are the cells that are said one by one; nil when they are not.
func (v VM) listed(nodes int) (cpus []farm.CPUSet, mems []farm.Bytes, err error) {
	cpuTexts, err := v.list("numa_cpus")
	if err != nil {
		return nil, nil, err
	}
	memTexts, err := v.list("numa_mem")
	if err != nil || len(cpuTexts)+len(memTexts) == 0 {
		return nil, nil, err
	}
	if len(cpuTexts) != nodes || len(memTexts) != nodes {
		return nil, nil, badProperty("give hw:numa_cpus.N and hw:numa_mem.N for every cell from 0 on, or for none",
			"of %d NUMA cells, %d have their vCPUs said and %d their memory", nodes, len(cpuTexts), len(memTexts))
	}
	for i := range nodes {
		set, err := parseCPUs(cpuTexts[i])
		if err != nil {
			return nil, nil, err
		}
		mib, err := strconv.ParseInt(memTexts[i], 10, 64)
		if err != nil || mib < 1 || mib > maxMemoryMiB {
			return nil, nil, badProperty("give a number of MiB", "%q is not the memory of a NUMA cell", memTexts[i])
		}
		cpus, mems = append(cpus, set), append(mems, farm.Bytes(mib)*farm.MiB)
	}
	return cpus, mems, nil
}

// list is a property that is numbered by cell, up to the first number that is missing.
func (v VM) list(name string) ([]string, error) {
	read := func(properties map[string]string, key string) (out []string) {
		for {
			text, ok := properties[fmt.Sprintf("%s.%d", key, len(out))]
			if !ok {
				return out
			}
			out = append(out, text)
		}
	}
	flavor, image := read(v.Flavor, "hw:"+name), read(v.Image, "hw_"+name)
	if len(flavor) > 0 && len(image) > 0 {
		return nil, conflict("the flavor says the NUMA cells one by one (hw:%s.N), so the image must not", name)
	}
	return append(flavor, image...), nil
}

// complete checks that the cells hold every vCPU once, and all memory.
func (v VM) complete(cpus []farm.CPUSet, mems []farm.Bytes) error {
	cellOf, memory := map[int]int{}, farm.Bytes(0)
	for i, set := range cpus {
		for _, cpu := range set.List() {
			if cpu >= v.VCPUs {
				return badProperty(fmt.Sprintf("vCPUs are numbered 0 to %d", v.VCPUs-1),
					"NUMA cell %d has vCPU %d, which the VM does not", i, cpu)
			}
			if other, ok := cellOf[cpu]; ok {
				return badProperty("put each vCPU into one cell", "vCPU %d is in NUMA cells %d and %d", cpu, other, i)
			}
			cellOf[cpu] = i
		}
		if set.Empty() {
			return badProperty("give each cell a vCPU", "NUMA cell %d has no vCPU", i)
		}
		memory += mems[i]
	}
	if len(cellOf) != v.VCPUs {
		return badProperty("put each vCPU into one cell", "no NUMA cell has %s of the VM", vcpus(v.VCPUs-len(cellOf)))
	}
	if memory != v.Memory {
		return badProperty("let hw:numa_mem.N add up to the VM's memory",
			"the NUMA cells have %v of memory together, the VM %v", memory, v.Memory)
	}
	return nil
}

// pages are the page sizes that will do; nil when nothing is said. The words stand for the sizes of x86-64.
func (v VM) pages() ([]farm.Bytes, error) {
	flavor, image := v.both("mem_page_size")
	word := flavor
	switch {
	case flavor == "" && image == "":
		return nil, nil
	case flavor == "":
		return nil, conflict("the image asks for memory pages (hw_mem_page_size), and the flavor allows no choice of " +
			"them")
	case image != "" && (flavor == "any" || flavor == "large"):
		word = image
	case image != "":
		return nil, conflict("the flavor has decided on memory pages (hw:mem_page_size=%s), so the image must not",
			flavor)
	}
	if _, err := pageSizes(flavor); err != nil {
		return nil, err
	}
	return pageSizes(word)
}

func pageSizes(word string) ([]farm.Bytes, error) {
	switch word {
	case "small":
		return []farm.Bytes{0}, nil
	case "large":
		return []farm.Bytes{farm.GiB, 2 * farm.MiB}, nil
	case "any":
		return []farm.Bytes{farm.GiB, 2 * farm.MiB, 0}, nil
	}
	size, err := farm.ParseBytes(word)
	if n, bare := strconv.ParseUint(word, 10, 40); bare == nil {
		size, err = farm.Bytes(n)*farm.KiB, nil
	}
	if err != nil || size < 4*farm.KiB || size&(size-1) != 0 {
		return nil, badProperty("write small, large, any, a number of KiB, or a size such as 2MB or 1GB",
			"%q is not a page size", word)
	}
	if size == 4*farm.KiB {
		size = 0
	}
	return []farm.Bytes{size}, nil
}

// vcpus counts in words.
func vcpus(n int) string {
	if n == 1 {
		return "1 vCPU"
	}
	return fmt.Sprintf("%d vCPUs", n)
}
