package images

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/flavor"
)

// shaping are the properties of images that say how a VM is made, in OpenStack's words.
var shaping = []string{"hw_cpu_sockets", "hw_cpu_cores", "hw_cpu_threads", "hw_cpu_max_sockets", "hw_cpu_max_cores",
	"hw_cpu_max_threads", "hw_cpu_thread_policy", "hw_numa_nodes", "hw_mem_page_size"}

// cpuModel is the property that names a model of processor: OpenStack has that with the host alone.
const cpuModel = "hw_cpu_model"

// videoModel is the property that gives VMs a display.
const videoModel = "hw_video_model"

// fixed are properties of which there is one value: but for the first, they say what every VM has anyway.
var fixed = map[string]string{videoModel: "vga", "hw_cpu_policy": "dedicated", "hw_disk_bus": "virtio",
	"hw_vif_model": "virtio"}

// checkProperties refuses properties of which nothing would come. Those without hw_ are the site's own notes.
func checkProperties(properties map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		value := properties[key]
		if key == "" || len(key) > 100 || len(value) > 200 || key+value != farm.Printable(key+value) {
			return badImage("invalid property %.80q", key)
		}
		only, is := fixed[key]
		switch {
		case !strings.HasPrefix(key, "hw_"), key == cpuModel, slices.Contains(shaping, key), is && value == only:
		case is:
			return badImage("property %s: VMs have %s, not %s", key, only, value)
		default:
			return badImage("property %s: nothing comes of it; there are %s and %s", key, strings.Join(shaping, ", "),
				cpuModel)
		}
	}
	return nil
}

func badImage(format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: CodeBadImage, Message: fmt.Sprintf(format, args...),
		Hint: "see docs/guide/images.md"}
}

// Shape is what becomes of a VM's shape for its image: what the image says of topology, pages and processor, within
// what the shape allows. asked is set where somebody chose the topology. Error: also CodeImageSmall.
func Shape(i farm.FleetImage, s farm.Shape, asked bool) (farm.Shape, error) {
	if err := small(i, s); err != nil {
		return s, err
	}
	if s.CPUModel == "" {
		s.CPUModel = i.Properties[cpuModel]
	}
	s.Display = s.Display || i.Properties[videoModel] != ""
	own := map[string]string{}
	for _, key := range shaping {
		if value := i.Properties[key]; value != "" && !(asked && topological(key)) {
			own[key] = value
		}
	}
	if len(own) == 0 {
		return s, nil
	}
	r, err := flavor.VM{VCPUs: s.CPUs, Memory: s.Memory, Flavor: flavorOf(s), Image: own}.Request()
	if err != nil {
		return s, err
	}
	if own["hw_numa_nodes"] != "" {
		s.Cells = len(r.Each)
	}
	if own["hw_mem_page_size"] != "" && len(r.Each) > 0 {
		if s.Pages = r.Each[0].Pages; len(s.Pages) == 1 && s.Pages[0] == 0 {
			s.Pages = nil // ordinary pages, as where nothing is said
		}
	}
	if own["hw_cpu_thread_policy"] != "" {
		s.Threads = r.Threads
	}
	if !asked {
		s.Guest = r.Guest
	}
	return s, nil
}

// topological reports whether a property is of the guest's topology: sockets, cores and threads.
func topological(key string) bool {
	return strings.HasPrefix(key, "hw_cpu_") && key != "hw_cpu_thread_policy"
}

// Reshape is what becomes of a VM's shape when it is made anew from another image: what the new one says of it where
// the old one said something else. Topology and model that were asked for when the VM was created stay.
func Reshape(old, image farm.FleetImage, s farm.Shape) (farm.Shape, error) {
	if sameShaping(old, image) {
		return s, small(image, s)
	}
	if model := old.Properties[cpuModel]; model != "" && s.CPUModel == model {
		s.CPUModel = ""
	}
	return Shape(image, s, false)
}

// sameShaping reports whether two images say the same of a VM's shape.
func sameShaping(a, b farm.FleetImage) bool {
	for _, key := range append([]string{cpuModel, videoModel}, shaping...) {
		if a.Properties[key] != b.Properties[key] {
			return false
		}
	}
	return true
}

// flavorOf is a shape in OpenStack's words: what an image may not go beyond.
func flavorOf(s farm.Shape) map[string]string {
	f := map[string]string{"hw:cpu_policy": "dedicated"}
	number := func(key string, n int) {
		if n > 0 {
			f["hw:"+key] = strconv.Itoa(n)
		}
	}
	number("cpu_sockets", s.Guest.Sockets)
	number("cpu_cores", s.Guest.Cores)
	number("cpu_threads", s.Guest.Threads)
	number("cpu_max_sockets", s.MaxGuest.Sockets)
	number("cpu_max_cores", s.MaxGuest.Cores)
	number("cpu_max_threads", s.MaxGuest.Threads)
	number("numa_nodes", s.Cells)
	if s.Threads != farm.PreferSiblings {
		f["hw:cpu_thread_policy"] = string(s.Threads)
	}
	switch {
	case len(s.Pages) > 1 && slices.Contains(s.Pages, 0):
		f["hw:mem_page_size"] = "any"
	case len(s.Pages) > 1:
		f["hw:mem_page_size"] = "large"
	case len(s.Pages) == 1 && s.Pages[0] > 0:
		f["hw:mem_page_size"] = strconv.FormatUint(uint64(s.Pages[0]/farm.KiB), 10)
	}
	return f
}

// small refuses a VM that is smaller than its image needs.
func small(i farm.FleetImage, s farm.Shape) error {
	var lacks []string
	if s.Memory < i.MinMemory {
		lacks = append(lacks, fmt.Sprintf("%v of memory", i.MinMemory))
	}
	disk := max(i.VirtualSize, s.Disks.Root) + s.Scratch
	for _, v := range s.Disks.Volumes {
		disk += v.Size
	}
	if disk < i.MinDisk {
		lacks = append(lacks, fmt.Sprintf("%v of root and scratch disk", i.MinDisk))
	}
	if lacks == nil {
		return nil
	}
	return &farm.Error{Kind: farm.Invalid, Code: CodeImageSmall,
		Message: "the image needs " + strings.Join(lacks, " and "), Hint: "ask for more, or take a larger shape"}
}
